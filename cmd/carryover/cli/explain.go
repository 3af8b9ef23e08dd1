package cli

import (
	"bytes"
	"fmt"
	"strings"
	"text/tabwriter"

	"carryover/cmd/carryover/config"
	"carryover/server/turn"
)

func explain(cfg config.Config) string {
	var out bytes.Buffer
	fmt.Fprintf(&out, "ok: %d prefill, %d decode, connector %s, store %s, ttl %s\n",
		len(cfg.Prefill), len(cfg.Decode), cfg.Connector.Name, config.StoreName(cfg.Redis), config.FormatDuration(cfg.Store.TTL))
	w := tabwriter.NewWriter(&out, 0, 0, 3, ' ', 0)
	for _, topic := range []struct {
		name  string
		lines []string
	}{
		{"instances", explainInstances(cfg)},
		{"prefill", []string{policyMeaning(cfg, config.RolePrefill)}},
		{"decode", []string{policyMeaning(cfg, config.RoleDecode)}},
		{"connector", explainConnector(cfg)},
		{"path", explainPath(cfg)},
		{"reuse", explainReuse(cfg)},
		{"limits", explainLimits(cfg.Limits)},
		{"tickets", explainStore(cfg)},
		{"admin", explainAdmin(cfg)},
		{"reload", []string{"SIGHUP or POST /admin/reload changes " + strings.Join(liveKeys(), ", ") + "; all other settings take a restart"}},
		{"beware", warnings(cfg)},
	} {
		for i, line := range topic.lines {
			name := topic.name
			if i > 0 {
				name = ""
			}
			fmt.Fprintf(w, "%s\t%s\n", name, line)
		}
	}
	_ = w.Flush() // into memory
	return out.String()
}

func explainInstances(cfg config.Config) (lines []string) {
	for _, role := range []string{config.RolePrefill, config.RoleDecode} {
		for _, i := range *cfg.Instances(role) {
			line := fmt.Sprintf("%s %s at %s", role, i.Name, i.BaseURL)
			if i.Weight > 1 {
				line += fmt.Sprintf(", weight %d", i.Weight)
			}
			if i.Ranks > 0 {
				line += fmt.Sprintf(", as %d data-parallel ranks", i.Ranks)
			}
			lines = append(lines, line)
		}
		for _, name := range cfg.Discovery.Names(role) {
			lines = append(lines, fmt.Sprintf("%s by DNS: %s, asked every 10s", role, name))
		}
	}
	d := cfg.Discovery
	if d.File != "" {
		lines = append(lines, "instances of the file "+d.File+", which is watched")
	}
	if d.K8sLabelSelector != "" {
		namespace := d.K8sNamespace
		if namespace == "" {
			namespace = "this pod's namespace"
		}
		lines = append(lines, fmt.Sprintf("pods of %s that match %q, port %s; prefill where label model is %s, decode where it is %s", namespace,
			d.K8sLabelSelector, d.K8sPort, strings.Join(d.PrefillModelLabels, " or "), strings.Join(d.DecodeModelLabels, " or ")))
	}
	if cfg.KVEvents.Port > 0 {
		lines = append(lines, fmt.Sprintf("KV events of prefill instances are read at port %d", cfg.KVEvents.Port))
	}
	if d.Registration {
		lines = append(lines, "instances that are added at the admin listener")
	}
	if allow := cfg.Routing.PrefillerAllow; len(allow) > 0 {
		lines = append(lines, "x-prefiller-host-port names the prefill instance, one of "+strings.Join(allow, ", "))
	}
	return lines
}

func policyMeaning(cfg config.Config, role string) string {
	name := cfg.Routing.Prefill
	if role == config.RoleDecode {
		name = cfg.Routing.Decode
	}
	prefix := "the instance that has computed most of the prompt's beginning, else the conversation's home, unless it is busier than 1.25 times the mean; else the least loaded"
	meaning := map[string]string{
		"auto":         "the instance that holds most of the conversation, unless it is busier than twice the mean; else the least loaded",
		"affinity":     "the instance that holds most of the conversation, else its home; turns without a conversation go to each in turn",
		"prefix":       prefix,
		"least_loaded": "the one with the least work, by its metrics and our turns",
		"power_of_two": "the less loaded of two random ones",
		"round_robin":  "each in turn",
	}[name]
	switch {
	case name == "auto" && role == config.RolePrefill:
		meaning = prefix
	case name == "auto" && !cfg.Connector.ReusesKV():
		meaning = "the conversation's home, unless it is busier than 1.25 times the mean; else the least loaded"
	}
	return name + ": " + meaning
}

func explainPath(cfg config.Config) (lines []string) {
	r := cfg.Routing
	switch {
	case len(r.PrefillerAllow) > 0:
		lines = append(lines, "requests without x-prefiller-host-port go to decode alone")
	case r.DisaggThreshold == 0:
		lines = append(lines, "every turn has a prefill leg")
	}
	if r.DisaggThreshold > 0 {
		lines = append(lines, fmt.Sprintf("turns with fewer than %d uncached prompt tokens, as estimated, go to decode alone", r.DisaggThreshold))
	}
	return append(lines, map[turn.PrefillFailure]string{
		turn.PrefillRetryOther: "a failed prefill leg is tried once more, elsewhere if possible; then decode prefills by itself, 16 turns at once; then 503",
		turn.PrefillDecodeOnly: "after a failed prefill leg decode prefills by itself, 16 turns at once; then 503",
		turn.PrefillError:      "a failed prefill leg is an error for the client",
	}[turn.PrefillFailure(r.PrefillFailure)])
}

func explainReuse(cfg config.Config) []string {
	if !cfg.Connector.ReusesKV() {
		return []string{"none from decode to prefill with this connector; a turn finds KV only in the instances' own prefix caches"}
	}
	lines := []string{"a turn reuses at least 64 tokens and half of a ticket"}
	if cfg.Release.Mode == "on" {
		line := "unused tickets are released with a later turn; if more than 8 of a decode instance wait, at once"
		if cfg.Release.PinnedShare > 0 {
			line += fmt.Sprintf("; the oldest tickets, too, while tickets pin more than %g of its KV cache", cfg.Release.PinnedShare)
		}
		lines = append(lines, line)
	}
	if !cfg.HandsBack() {
		return append(lines, "nothing is handed back to prefill")
	}
	return append(lines, "a ticket is handed back "+cfg.HandBackWhen()+": prefill reads it into its prefix cache, and decode is free")
}

func explainLimits(l config.LimitsConfig) []string {
	some := func(n int, none string) string {
		if n == 0 {
			return none
		}
		return fmt.Sprint(n)
	}
	return []string{
		fmt.Sprintf("turns at once: %s, per instance %s, per tenant %s", some(l.MaxStreams, "as the open-file limit allows"),
			some(l.MaxPerInstance, "any number"), some(l.MaxPerTenant, "any number")),
		fmt.Sprintf("%d turns wait for a slot, in fair shares among tenants, for %s at most; all others get 503", l.MaxQueue, config.FormatDuration(l.QueueTimeout)),
	}
}

func explainStore(cfg config.Config) []string {
	if !cfg.Connector.ReusesKV() {
		return nil
	}
	where := "Redis, for all replicas"
	if cfg.Redis.URL == "" {
		where = "this process only"
	}
	return []string{fmt.Sprintf("in %s, usable for %s", where, config.FormatDuration(cfg.Store.TTL))}
}

func explainAdmin(cfg config.Config) []string {
	switch {
	case cfg.Admin.Listen == config.AdminOff:
		return []string{"no listener; SIGHUP reloads"}
	case cfg.Admin.Token == "":
		return []string{cfg.Admin.Listen + ", without a token, for this machine only"}
	}
	return []string{cfg.Admin.Listen + ", with a bearer token"}
}

func liveKeys() (keys []string) {
	var cfg config.Config
	for _, s := range config.Settings(&cfg) {
		if s.Live {
			keys = append(keys, s.Key)
		}
	}
	return keys
}

// warnings lists settings that are allowed and seldom meant.
func warnings(cfg config.Config) (lines []string) {
	lines = append(lines, connectorWarnings(cfg)...)
	if cfg.Conversation.Secret == "" && cfg.Connector.ReusesKV() {
		lines = append(lines, "no secret: tickets end with this process")
	}
	if r := cfg.Routing; r.Prefill == "round_robin" && r.Decode == "round_robin" {
		lines = append(lines, "round_robin for both roles: prefill and decode compute again what another instance has in its prefix cache")
	}
	if len(cfg.Routing.PrefillerAllow) > 0 && len(cfg.Prefill)+len(cfg.Discovery.PrefillDNS) > 0 {
		lines = append(lines, "routing.prefiller_allow: prefill instances that no request names get no turns")
	}
	if cfg.Limits.MaxPerInstance > 0 && cfg.Limits.MaxQueue == 0 {
		lines = append(lines, "limits.max_per_instance without a queue: turns beyond it are refused at once")
	}
	if len(cfg.Prefill) == 1 && cfg.Routing.PrefillFailure == string(turn.PrefillError) && !cfg.Finds(config.RolePrefill) {
		lines = append(lines, "one prefill instance and routing.prefill_failure error: its restart is an outage")
	}
	return lines
}

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
	out.WriteString(summary(cfg))
	w := tabwriter.NewWriter(&out, 0, 0, 3, ' ', 0)
	for _, topic := range []struct {
		name  string
		lines []string
	}{
		{"instances", explainInstances(cfg)},
		{"receivers", explainReceivers(cfg)},
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

func summary(cfg config.Config) string {
	return fmt.Sprintf("ok: %d prefill, %d decode, connector %s, store %s, ttl %s\n",
		len(cfg.Prefill), len(cfg.Decode), cfg.Connector.Name, config.StoreName(cfg.Redis), config.FormatDuration(cfg.Store.TTL))
}

func explainInstances(cfg config.Config) (lines []string) {
	for _, role := range []string{config.RolePrefill, config.RoleDecode} {
		for _, i := range *cfg.Instances(role) {
			line := fmt.Sprintf("%s %s at %s", role, i.Name, i.URL)
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

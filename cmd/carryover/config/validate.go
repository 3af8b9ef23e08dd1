package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"carryover/cmd/carryover/command"
	"carryover/cmd/carryover/config/hostport"
	"carryover/server"
	"carryover/upstream"
)

const (
	wantPositive = "more than 0"

	// minSecretBytes is the length of a random 128-bit key.
	minSecretBytes = 16

	// engineLease is how long a vLLM prefill instance keeps blocks for decode: kv_lease_duration in
	// docs/design/nixl_kv_cache_lease.md, since vllm#41383.
	engineLease = 30 * time.Second
)

// validate checks the effective configuration and records every fault.
func (l *Loader) validate() {
	for _, s := range l.rows {
		l.validateRow(s)
	}
	if !upstream.IsHost(l.cfg.Listen.Host) {
		l.fault("listen.host", l.cfg.Listen.Host, "an IP address or a host name of this machine, 0.0.0.0 for all")
	}
	l.validateRole(RolePrefill)
	l.validateRole(RoleDecode)
	l.validateDiscovery()
	l.validateConnector()
	l.validateAdmin()
	l.validateKVHost("kv.host", l.cfg.KV.Host)
	l.validateConversation()
	l.validateTTL()
	l.validateHandBack()
	l.validateRender()
	l.validateLegTimes()
	l.validateRedis()
	l.validateUpstreamKey()
	l.validateProxies()
	if body, all := l.cfg.Limits.MaxBodyBytes, l.cfg.Limits.MaxInflightBytes; body > all {
		l.fault("limits.max_inflight_bytes", all.String(), fmt.Sprintf("at least limits.max_body_bytes, %s", body))
	}
}

// validateRow checks one value against the table and its type.
func (l *Loader) validateRow(s Setting) {
	value := FormatValue(s.To)
	switch v := s.To.(type) {
	case *time.Duration:
		l.validateDuration(s.Key, *v)
	case *ByteSize:
		if *v <= 0 {
			l.fault(s.Key, value, wantPositive)
		}
	case *int:
		if *v < s.min || (s.max > 0 && *v > s.max) {
			l.fault(s.Key, value, s.bounds())
		}
	case *string:
		l.validateChoice(s.Key, *v, s.OneOf)
	case *[]string:
		for _, item := range *v {
			l.validateChoice(s.Key, item, s.OneOf)
		}
	case *map[string]string:
		for _, name := range slices.Sorted(maps.Keys(*v)) {
			l.validateChoice(s.Key+"."+name, (*v)[name], s.OneOf)
		}
	}
}

// maxDuration is as good as no limit. Some deadlines add a duration, and a part of it, to a time of day. A duration of centuries overflows
// there, and the deadline passes at once.
const maxDuration = 8760 * time.Hour

func (l *Loader) validateDuration(key string, d time.Duration) {
	switch {
	case d <= 0:
		l.fault(key, FormatDuration(d), wantPositive)
	case d > maxDuration:
		l.fault(key, FormatDuration(d), "at most 8760h")
	}
}

func (l *Loader) validateChoice(key, value string, oneOf []string) {
	if oneOf != nil && !slices.Contains(oneOf, value) {
		l.fault(key, value, Choice(oneOf)+command.Meant(value, oneOf))
	}
}

// Choice lists accepted values for a message.
func Choice(names []string) string {
	if len(names) == 1 {
		return names[0]
	}
	return "one of " + strings.Join(names, ", ")
}

func (l *Loader) validateConversation() {
	c := &l.cfg.Conversation
	if len(c.Sources) == 0 {
		l.fault("conversation.sources", "", "at least one of "+strings.Join(ConversationSources(), ", "))
	}
	for i, source := range c.Sources {
		if slices.Contains(c.Sources[:i], source) {
			l.fault("conversation.sources", source, "each source once")
		}
	}
	if c.TenantHeader != "" && !isFieldName(c.TenantHeader) {
		l.fault("conversation.tenant_header", c.TenantHeader, "a header name of letters, digits and !#$%&'*+-.^_`|~")
	}
	if l.given("conversation.secret") && len(c.Secret) < minSecretBytes {
		l.fault("conversation.secret", fmt.Sprintf("%d bytes", len(c.Secret)), fmt.Sprintf("at least %d bytes", minSecretBytes))
	}
}

// isFieldName follows RFC 9110 section 5.6.2 (token).
func isFieldName(text string) bool {
	return text != "" && strings.Trim(text, Letters+Digits+"!#$%&'*+-.^_`|~") == ""
}

// validateTTL keeps tickets from outliving the blocks that they name: a later read would find blocks of another request. The
// decode instance with the shortest time decides.
func (l *Loader) validateTTL() {
	if kept := l.cfg.Store.DecoderKVTTL; kept > 0 && kept <= maxDuration { // otherwise validateRow has refused it
		l.validateKVTTL("store.decoder_kv_ttl", kept)
	}
	ttl := l.cfg.Store.TTL
	shortest := -1
	for i, inst := range l.cfg.Decode {
		if inst.KVTTL > 0 && (shortest < 0 || inst.KVTTL < l.cfg.Decode[shortest].KVTTL) {
			shortest = i
		}
	}
	if shortest >= 0 && ttl >= l.cfg.Decode[shortest].KVTTL {
		l.fault("store.ttl", FormatDuration(ttl), fmt.Sprintf("less than the %s for which decode[%d] keeps its blocks (store.decoder_kv_ttl, kv_ttl)",
			FormatDuration(l.cfg.Decode[shortest].KVTTL), shortest))
	}
}

// validateKVTTL refuses a block lifetime of decode that is too short for any ticket.
func (l *Loader) validateKVTTL(key string, ttl time.Duration) {
	if ttl > maxDuration {
		l.fault(key, FormatDuration(ttl), "at most 8760h")
	}
	if ttl <= server.MarginWithExpiry {
		l.fault(key, FormatDuration(ttl), fmt.Sprintf("more than the %s by which a ticket ends before its blocks", FormatDuration(server.MarginWithExpiry)))
	}
}

// validateLegTimes keeps the legs of a turn shorter than the time for which engines keep blocks for each other.
func (l *Loader) validateLegTimes() {
	if trial := l.cfg.Proof.ReuseTrialTimeout; trial > server.MaxReuseTrial {
		l.fault("proof.reuse_trial_timeout", FormatDuration(trial),
			fmt.Sprintf("at most %s: prefill must have read a ticket's blocks before decode may free them", FormatDuration(server.MaxReuseTrial)))
	}
	dial, budget := l.cfg.Timeouts.Dial, l.cfg.Timeouts.HandoverBudget
	if budget >= engineLease {
		l.fault("timeouts.handover_budget", FormatDuration(budget), "less than the 30s for which prefill keeps its blocks")
	}
	if budget > 0 && dial >= budget {
		l.fault("timeouts.dial", FormatDuration(dial), fmt.Sprintf("less than timeouts.handover_budget, %s, which pays for another instance too", FormatDuration(budget)))
	}
}

// validateUpstreamKey refuses keys that net/http would refuse to send with every request.
func (l *Loader) validateUpstreamKey() {
	if key := string(l.cfg.Auth.UpstreamKey); key != "" && !hostport.IsVisible(key) {
		l.fault("auth.upstream_key", redacted, "printable ASCII without spaces")
	}
}

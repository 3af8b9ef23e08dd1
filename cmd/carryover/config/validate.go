package config

import (
	"fmt"
	"math"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"carryover/cmd/carryover/command"
	"carryover/server/pins"
	"carryover/upstream"
)

const (
	wantPositive = "more than 0"

	// minSecretBytes is 128 bits.
	minSecretBytes = 16

	// engineLease is how long vLLM's prefill keeps blocks for decode: kv_lease_duration, docs/design/nixl_kv_cache_lease.md, since vllm#41383.
	engineLease = 30 * time.Second
)

// validate records every fault of the effective configuration.
func validate(v *validation, c *Config, rows []Setting) {
	for _, s := range rows {
		validateRow(v, s)
	}
	if !upstream.IsHost(c.Listen.Host) {
		v.fault("listen.host", c.Listen.Host, "an IP address or a host name of this machine, 0.0.0.0 for all")
	}
	validateRole(v, c, RolePrefill)
	validateRole(v, c, RoleDecode)
	validateDiscovery(v, c)
	refuseUseless(v, c, rows)
	validateLMCache(v, c)
	validateKVEvents(v, c)
	validateAdmin(v, &c.Admin)
	validateKVHost(v, "kv.host", c.KV.Host)
	validateConversation(v, &c.Conversation)
	validateTTL(v, c)
	validateHandBack(v, c)
	if _, err := upstream.ParseBaseURL(c.Conversation.Render); c.Conversation.Render != "" && err != nil {
		v.fault("conversation.render", c.Conversation.Render, wantBaseURL)
	}
	validateLegTimes(v, c)
	validateRedis(v, c)
	if key := string(c.Auth.UpstreamKey); key != "" && !upstream.IsVisible(key) { // net/http would refuse it with every request
		v.fault("auth.upstream_key", redacted, "printable ASCII without spaces")
	}
	if body, all := c.Limits.MaxBodyBytes, c.Limits.MaxInflightBytes; body > all {
		v.fault("limits.max_inflight_bytes", all.String(), fmt.Sprintf("at least limits.max_body_bytes, %s", body))
	}
}

func validateRow(v *validation, s Setting) {
	value := FormatValue(s.To)
	switch to := s.To.(type) {
	case *time.Duration:
		if *to != 0 || !s.off {
			validateDuration(v, s.Key, *to)
		}
	case *Wait:
		if *to != WaitAuto {
			validateDuration(v, s.Key, time.Duration(*to))
		}
	case *ByteSize:
		if *to <= 0 {
			v.fault(s.Key, value, wantPositive)
		}
	case *int:
		if *to < s.min || (s.max > 0 && *to > s.max) {
			v.fault(s.Key, value, s.bounds())
		}
	case *string:
		validateChoice(v, s.Key, *to, s.OneOf)
	case *[]string:
		for _, item := range *to {
			validateChoice(v, s.Key, item, s.OneOf)
		}
	}
}

// maxDuration is as good as no limit. Some deadlines add a duration and a part of it to a time of day. Centuries overflow there, and the
// deadline passes at once.
const maxDuration = 8760 * time.Hour

func validateDuration(v *validation, key string, d time.Duration) {
	switch {
	case d <= 0:
		v.fault(key, FormatDuration(d), wantPositive)
	case d > maxDuration:
		v.fault(key, FormatDuration(d), "at most 8760h")
	}
}

func validateChoice(v *validation, key, value string, oneOf []string) {
	if oneOf != nil && !slices.Contains(oneOf, value) {
		v.fault(key, value, Choice(oneOf)+command.Meant(value, oneOf))
	}
}

// Choice lists accepted values for a message.
func Choice(names []string) string {
	if len(names) == 1 {
		return names[0]
	}
	return "one of " + strings.Join(names, ", ")
}

func validateConversation(v *validation, c *ConversationConfig) {
	if len(c.Sources) == 0 {
		v.fault("conversation.sources", "", "at least one of "+strings.Join(ConversationSources(), ", "))
	}
	for i, source := range c.Sources {
		if slices.Contains(c.Sources[:i], source) {
			v.fault("conversation.sources", source, "each source once")
		}
	}
	if c.TenantHeader != "" && !httpguts.ValidHeaderFieldName(c.TenantHeader) {
		v.fault("conversation.tenant_header", c.TenantHeader, "a header name of letters, digits and !#$%&'*+-.^_`|~")
	}
	if v.given("conversation.secret") && len(c.Secret) < minSecretBytes {
		v.fault("conversation.secret", fmt.Sprintf("%d bytes", len(c.Secret)), fmt.Sprintf("at least %d bytes", minSecretBytes))
	}
}

// validateTTL keeps tickets from outliving their blocks: a later read would find blocks of another request. The shortest block lifetime of
// all decode instances counts.
func validateTTL(v *validation, c *Config) {
	if kept := c.Store.DecoderKVTTL; kept > 0 && kept <= maxDuration { // validateRow refuses other values
		validateKVTTL(v, "store.decoder_kv_ttl", kept)
	}
	ttl, shortest := c.Store.TTL, time.Duration(math.MaxInt64)
	at := 0
	for i, inst := range c.Decode {
		if inst.KVTTL > 0 && inst.KVTTL < shortest {
			at, shortest = i, inst.KVTTL
		}
	}
	if ttl >= shortest {
		v.fault("store.ttl", FormatDuration(ttl), fmt.Sprintf("less than the %s for which decode[%d] keeps its blocks (store.decoder_kv_ttl, kv_ttl)", FormatDuration(shortest), at))
	}
}

func validateKVTTL(v *validation, key string, ttl time.Duration) {
	if ttl > maxDuration {
		v.fault(key, FormatDuration(ttl), "at most 8760h")
	}
	if ttl <= pins.MarginWithExpiry {
		v.fault(key, FormatDuration(ttl), fmt.Sprintf("more than the %s by which a ticket ends before its blocks", FormatDuration(pins.MarginWithExpiry)))
	}
}

// validateLegTimes keeps the hand-over shorter than prefill's lease on its blocks.
func validateLegTimes(v *validation, c *Config) {
	switch budget := c.Timeouts.HandoverBudget; {
	case budget >= engineLease:
		v.fault("timeouts.handover_budget", FormatDuration(budget), "less than the 30s for which prefill keeps its blocks")
	case budget > 0 && budget <= DialTimeout:
		v.fault("timeouts.handover_budget", FormatDuration(budget), fmt.Sprintf("more than %s, the time limit of one dial, because the budget covers a second instance, too", FormatDuration(DialTimeout)))
	}
}

// validateAdmin demands a token if other machines can reach the listener: it can add instances, which then get every prompt.
func validateAdmin(v *validation, a *AdminConfig) {
	if v.given("admin.token") && (len(a.Token) < minSecretBytes || !upstream.IsVisible(string(a.Token))) {
		v.fault("admin.token", redacted, fmt.Sprintf("at least %d printable ASCII characters without spaces", minSecretBytes))
	}
	if a.Listen == AdminOff {
		return
	}
	host, port, err := net.SplitHostPort(a.Listen)
	if err != nil || host != "" && !upstream.IsHost(host) || port != "0" && !upstream.IsPort(port) {
		v.fault("admin.listen", a.Listen, "host:port, or "+AdminOff)
		return
	}
	if a.Token == "" && !IsLoopback(host) {
		v.fault("admin.listen", a.Listen, "admin.token_file beside an address that is not loopback")
	}
}

// IsLoopback reports whether a host is reachable only from this machine.
func IsLoopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.IsLoopback()
}

func validateHandBack(v *validation, c *Config) {
	h := &c.HandBack
	if ttl := c.Store.TTL; h.Mode == string(pins.HandBackIdle) && ttl > 0 && time.Duration(h.After) >= ttl {
		v.fault("hand_back.after", h.After.String(), fmt.Sprintf("less than store.ttl, %s, for which a ticket lives at most; or hand_back.mode now or off", FormatDuration(ttl)))
	}
}

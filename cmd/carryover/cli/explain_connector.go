package cli

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"carryover/cmd/carryover/config"
)

// explainReceivers says where LMCache sends KV.
func explainReceivers(cfg config.Config) (lines []string) {
	if cfg.Connector.Name != config.ConnectorLMCache {
		return nil
	}
	named, _ := cfg.LMCache.Receivers() // Load has checked it
	for _, at := range slices.Sorted(maps.Keys(named)) {
		lines = append(lines, fmt.Sprintf("decode %s receives at %s, ports %s and %s", at, named[at].Host, ports(named[at].InitPorts), ports(named[at].AllocPorts)))
	}
	return lines
}

func ports(list []int) string {
	return strings.ReplaceAll(strings.Trim(fmt.Sprint(list), "[]"), " ", ",")
}

// connectorWarnings lists what a connector demands of the engines, and settings that have no effect with it.
func connectorWarnings(cfg config.Config) (lines []string) {
	c := cfg.Connector
	if idle := idleSettings(cfg); len(idle) > 0 {
		lines = append(lines, fmt.Sprintf("connector %s leaves no tickets: no effect of %s", c.Name, strings.Join(idle, ", ")))
	}
	switch c.Name {
	case config.ConnectorLMCache:
		lines = append(lines, "a request that reaches a prefill instance without Carryover ends that engine: LMCache's sender needs disagg_spec")
		if cfg.LMCache.MaxPromptTokens == 0 {
			lines = append(lines, "lmcache.max_prompt_tokens is not set: prompts longer than prefill's --max-num-batched-tokens (2048 by default) are never announced")
		}
		lines = append(lines, "each decode leg has a cache_salt of its own, so that decode fetches all KV that prefill sends: the rest would stay in LMCache's receiver, and a full one stops prefill")
		if cfg.Finds(config.RoleDecode) {
			lines = append(lines, "decode instances from discovery that are not in lmcache.decoder_registry get no KV")
		}
		lines = append(lines, "each hand-over has LMCache keys of its own, which LMCache before 0.3.6 ignores: there tenants share keys, and decode can find KV that has not arrived yet")
	case config.ConnectorLMCacheStorage:
		lines = append(lines, "cache_salt does not keep tenants apart in LMCache: its keys are made of token ids alone")
		if cfg.Conversation.TenantSalt {
			lines = append(lines, "conversation.tenant_salt keeps tenants apart in the engines' prefix caches, but not in LMCache")
		}
	}
	return lines
}

// idleSettings lists the settings of tickets that differ from their defaults although the connector makes no tickets.
func idleSettings(cfg config.Config) (keys []string) {
	if cfg.Connector.ReusesKV() {
		return nil
	}
	defaults := config.Default()
	usual := config.Settings(&defaults)
	for i, s := range config.Settings(&cfg) {
		ofTickets := slices.Contains([]string{"release", "hand_back", "store"}, s.Section())
		if ofTickets && config.FormatValue(s.To) != config.FormatValue(usual[i].To) {
			keys = append(keys, s.Key)
		}
	}
	return keys
}

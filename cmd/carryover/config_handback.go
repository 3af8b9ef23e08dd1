package main

import (
	"fmt"

	"carryover/server"
)

// leastHandBackMemory is room for 262,144 ids, so that a conversation of the longest context of usual models finds some.
const leastHandBackMemory = mebibyte

// completeHandBack has tickets that live for no longer than the usual wait handed back halfway.
func (l *loader) completeHandBack() {
	if ttl := l.cfg.Store.TTL; !l.given("hand_back.after") && ttl > 0 && l.cfg.HandBack.After >= ttl {
		l.cfg.HandBack.After = ttl / 2
	}
}

// validateHandBack refuses a wait that no ticket would survive, and room that no long conversation would find.
func (l *loader) validateHandBack() {
	h := &l.cfg.HandBack
	if ttl := l.cfg.Store.TTL; h.Mode == string(server.HandBackIdle) && ttl > 0 && h.After >= ttl {
		l.fault("hand_back.after", formatDuration(h.After), fmt.Sprintf("less than store.ttl, %s, for which a ticket lives at most; or hand_back.mode now or off", formatDuration(ttl)))
	}
	if h.Memory > 0 && h.Memory < leastHandBackMemory {
		l.fault("hand_back.memory", h.Memory.String(), "at least "+leastHandBackMemory.String())
	}
}

// handBackOff is why nothing is handed back with a configuration. The zero value says that tickets are.
type handBackOff struct {
	why    string
	change string // what has tickets handed back, "" where nothing does
}

// handBackOff tells what the configuration alone decides. Of a model whose own proof is history nothing is handed back either way.
func (c *Config) handBackOff() handBackOff {
	switch {
	case !c.Connector.reusesKV():
		return handBackOff{why: "connector " + c.Connector.Name + " leaves no tickets"}
	case !c.Connector.handsBack():
		return handBackOff{why: "with connector " + c.Connector.Name + " it was never measured"}
	case c.HandBack.Mode == string(server.HandBackOff):
		return handBackOff{why: "--hand-back off", change: "--hand-back idle"}
	case !provesTokens(c.Proof):
		return handBackOff{why: "--proof history knows no token ids, which prefill would have to be sent", change: "engines of vLLM 0.28 or newer, and --proof auto"}
	}
	return handBackOff{}
}

// handBackWhen says in words when tickets are handed back.
func (c *Config) handBackWhen() string {
	if c.HandBack.Mode == string(server.HandBackNow) {
		return "at the end of each turn"
	}
	return "when no turn has used it for " + formatDuration(c.HandBack.After)
}

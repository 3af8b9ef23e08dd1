package fleet

import (
	"time"

	"carryover/upstream"
)

// Live is the state of an engine at a moment.
type Live struct {
	// State says whether the engine is picked: "up", or why only if no other is left ("down", "open", "half_open",
	// "ejected", "barred", "draining").
	State    string
	Start    string // of the engine, "" if it is not known
	InFlight int    // attempts of ours
	// Running, Waiting and KVUsage are those of the last reading of /metrics; KVTokens is how many tokens the KV cache holds,
	// 0 if that is not known. Read is when they were read, zero if they never were.
	Running, Waiting int
	KVUsage          float64
	KVTokens         int
	Read             time.Time
	// PerToken is how long prefill takes for a token of a prompt, 0 while that is not known.
	PerToken time.Duration
	// Pinned is how many tokens of the cache unused tickets of ours hold that wait for their release.
	Pinned int
	Models []string
}

// Live returns the state of the engine now.
func (e *Engine) Live() Live {
	e.mu.Lock()
	defer e.mu.Unlock()
	return Live{InFlight: e.inFlight}
}

// Model is one model that engines serve.
type Model struct {
	ID   string
	Card []byte // the entry of /v1/models, as an engine wrote it
}

// Models returns the models that the engines serve which are up, each once, in the order of the engines.
func (f *Fleet) Models() []Model { return nil }

// SetPolicies changes how the instances of the two roles are picked.
func (f *Fleet) SetPolicies(prefill, decode upstream.Policy) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cfg.Prefill, f.cfg.Decode = prefill, decode
}

// SetMaxInFlight changes how many attempts an engine may have at once; 0 is no limit.
func (f *Fleet) SetMaxInFlight(int) {}

// LearnSpeed records a prefill leg that computed so many tokens of its prompt.
func (s *Start) LearnSpeed(tokens int, took time.Duration) {}

// Failed records that a leg which the engine had accepted failed for a reason that is not the client's: a 5xx, a connection that
// broke, no answer in time.
func (e *Engine) Failed() {}

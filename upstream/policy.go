package upstream

// Candidate is an instance that may be picked, with what a policy can weigh.
type Candidate struct {
	*Instance
	// InFlight is how many of our attempts use it now.
	InFlight int
	// Others is how many requests, running and waiting, the engine had at its last reading besides ours, and how many legs of ours it has
	// failed lately.
	Others int
	// Waiting is how many of all its requests waited at that reading.
	Waiting int
	// KVUsage is the share of its KV cache that was in use at that reading, 0 to 1.
	KVUsage float64
	// Delay is how many nanoseconds a prefill instance is expected to need for the prompt tokens that it was sent and
	// has not computed yet, plus those of this turn; 0 for decode, and while its speed is not known.
	Delay float64
	// Holds is how many tokens of the conversation the current incarnation holds: decode by tickets, prefill in its
	// prefix cache after a hand-back. It is 0 if none are known.
	Holds int
	// Prefix is how many pieces of the prompt's beginning the current incarnation of a prefill instance has computed,
	// or got by a hand-back.
	Prefix int
	// Stopped says that no ticket can be used through this instance now: the pairs that would be needed are stopped,
	// and their next trials are not due yet.
	Stopped bool
}

// Policy picks one of at least one candidates and returns its index. key is equal for all turns of one conversation,
// and empty without a conversation. A policy is safe for concurrent use, never blocks, and keeps no reference to the
// candidates.
type Policy interface {
	Pick(candidates []Candidate, key string) int
}

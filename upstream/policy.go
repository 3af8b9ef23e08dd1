package upstream

// Candidate is an instance that may be picked, with what a policy may weigh.
type Candidate struct {
	*Instance
	// InFlight is how many attempts of ours have it now.
	InFlight int
	// Others is how many requests the engine had at its last reading beyond those that were ours, running and waiting.
	Others int
	// Waiting is how many of all its requests waited for a place then.
	Waiting int
	// KVUsage is the share of its KV cache that was in use then, 0 to 1.
	KVUsage float64
	// Delay is how many nanoseconds a prefill instance is expected to need for the prompt tokens that it has been sent and has not
	// computed yet, and for those of this turn; 0 for decode and while its speed is not known.
	Delay float64
	// Holds is how many tokens of the conversation the current start of the instance holds: of decode by tickets, of prefill in its
	// prefix cache by what was handed back to it. It is 0 if none is known of.
	Holds int
	// Prefix is how many pieces of the beginning of the prompt the current incarnation of a prefill instance has computed before, or has
	// had handed back to it.
	Prefix int
	// Stopped says that nothing can be reused by way of this instance now: the pairs
	// on which it would be have been stopped, and are not to be tried again yet.
	Stopped bool
}

// Policy picks one of at least one candidates and returns its index. key is
// equal for the turns of one conversation and empty without a conversation. A
// policy is safe for concurrent use, never blocks, and keeps nothing of the candidates.
type Policy interface {
	Pick(candidates []Candidate, key string) int
}

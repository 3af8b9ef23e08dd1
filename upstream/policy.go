package upstream

// Candidate is an instance that may be picked, with what a policy may weigh.
type Candidate struct {
	*Instance
	// InFlight is how many attempts have it now.
	InFlight int
	// Holds is how many tokens of the conversation the current start of a decode
	// instance holds, 0 if none is known of and for prefill instances.
	Holds int
	// Stopped says that nothing can be reused by way of this instance now: the links
	// on which it would be have been stopped, and are not to be tried again yet.
	Stopped bool
}

// Policy picks one of at least one candidates and returns its index. key is
// equal for the turns of one conversation and empty without a conversation. A
// policy is safe for concurrent use and never blocks.
type Policy interface {
	Pick(candidates []Candidate, key string) int
}

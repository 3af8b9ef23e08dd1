package engines

// Counts are what engines have seen without a fault.
type Counts struct {
	Prefills int `json:"prefills"` // legs to prefill, releases among them
	Hits     int `json:"hits"`     // of these, with KV of the conversation that decode held
	Decodes  int `json:"decodes"`  // legs to decode with a hand-over
	Alone    int `json:"alone"`    // requests to decode without one
	Aborted  int `json:"aborted"`  // answers whose reader left before their end
}

// Faults are mistakes that the engines have counted. One of them makes the figures of its measurement worthless.
type Faults struct {
	MixUps int `json:"mix_ups"` // a hand-over, a ticket or ids of another conversation or turn
	Flags  int `json:"flags"`   // a leg whose members do not belong to its role
	Twice  int `json:"twice"`   // a hand-over or a ticket that was used again
	Leaks  int `json:"leaks"`   // a hand-over that decode has never read, a request that never ended
}

// Any reports whether there is a fault.
func (f Faults) Any() bool { return f != Faults{} }

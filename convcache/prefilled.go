package convcache

// Prefilled is how much of a ticket's tokens a prefix cache of prefill holds by itself: those of the last prompt of the conversation
// that was sent to it.
type Prefilled struct {
	Incarnation Incarnation
	Space       uint64 // as in Ancestor
	Tokens      int
}

// MaxPrefilled is how many prefix caches a ticket tells that of. In Redis each takes 20 bytes or less.
const MaxPrefilled = 8

// PrefilledIn returns how many tokens a prefix cache holds by itself, 0 if that is not known.
func PrefilledIn(known []Prefilled, in Incarnation, space uint64) int {
	for i := range known {
		if known[i].Incarnation == in && known[i].Space == space {
			return known[i].Tokens
		}
	}
	return 0
}

// AddPrefilled returns what is known together with one more, of which at most MaxPrefilled stay: those that hold the most. Of one cache
// that of more tokens stays. known is the caller's own.
func AddPrefilled(known []Prefilled, more Prefilled) []Prefilled {
	least := 0
	for i := range known {
		if known[i].Incarnation == more.Incarnation && known[i].Space == more.Space {
			known[i].Tokens = max(known[i].Tokens, more.Tokens)
			return known
		}
		if known[i].Tokens < known[least].Tokens {
			least = i
		}
	}
	if len(known) < MaxPrefilled {
		return append(known, more)
	}
	if more.Tokens > known[least].Tokens {
		known[least] = more
	}
	return known
}

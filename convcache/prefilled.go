package convcache

// Prefilled says how many of a ticket's tokens a prefill instance's own prefix cache holds: the tokens of the conversation's last prompt
// that was sent to this instance.
type Prefilled struct {
	Prefill Holder
	Tokens  int
}

// MaxPrefilled is how many prefix caches a ticket lists in Prefilled.
const MaxPrefilled = 8

// PrefilledIn returns how many tokens the prefix cache of an incarnation holds, 0 if that is not known.
func PrefilledIn(known []Prefilled, prefill Holder) int {
	for i := range known {
		if known[i].Prefill == prefill {
			return known[i].Tokens
		}
	}
	return 0
}

// AddPrefilled returns known with one more entry. For each cache it keeps the entry with more tokens, and at most MaxPrefilled entries
// stay: those with the most tokens. known belongs to the caller alone and may be changed.
func AddPrefilled(known []Prefilled, more Prefilled) []Prefilled {
	least := 0
	for i := range known {
		if known[i].Prefill == more.Prefill {
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

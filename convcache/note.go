package convcache

import "time"

// NoteTTL is how long a note lives. What it speaks of lives as long as prefill's cache has room for it, which no one tells.
const NoteTTL = time.Hour

// Note returns what takes the ticket's place once the KV of its tokens is in the prefix cache of that prefill incarnation: the same
// branch of the conversation, without any blocks of decode's.
func (t Ticket) Note(prefill, incarnation string, now time.Time) Ticket {
	t.Decode, t.Incarnation, t.EngineID, t.Params, t.Reading = "", "", "", nil, nil
	t.Prefill, t.PrefillIncarnation, t.Deadline = prefill, incarnation, now.Add(NoteTTL)
	return t
}

// OutdatedBy reports whether a note is of no use beside a branch that its conversation has already: that covers the same text
// or all its tokens, and is a ticket or covers more. So a turn has come between, whose ticket says more than the note of
// the turn before. Of two notes of the same the later one is of use.
func (t *Ticket) OutdatedBy(there *Ticket) bool {
	if there.HandedBack() && t.displaces(there) {
		return false
	}
	return t.sameHistory(there) || there.supersedes(t)
}

// HandedBack reports whether the ticket is a note: its KV is prefill's, and decode holds nothing for it.
func (t *Ticket) HandedBack() bool { return t.Prefill != "" }

// HandedBack reports whether the branch is a note's.
func (b *Branch) HandedBack() bool { return b.Prefill != "" }

package convcache

import "time"

// NoteTTL is how long a note lives. The KV that it refers to lives as long as prefill's cache has space for it, which
// nothing reports.
const NoteTTL = time.Hour

// Note returns the note that replaces the ticket once the KV of its tokens is in the prefix cache of that prefill
// incarnation: the same branch of the conversation, without blocks of decode.
func (t Ticket) Note(prefill, incarnation string, now time.Time) Ticket {
	t.Decode, t.Incarnation, t.EngineID, t.Params, t.Reading = "", "", "", nil, nil
	t.Prefill, t.PrefillIncarnation, t.Deadline = prefill, incarnation, now.Add(NoteTTL)
	return t
}

// OutdatedBy reports whether a branch of the conversation makes the note useless: the branch covers the same text or all
// tokens of the note, and it is a ticket or covers more. Then a later turn has stored the branch, and its ticket is worth
// more than the note of the turn before. Of two notes for the same text, the later one is useful.
func (t *Ticket) OutdatedBy(there *Ticket) bool {
	if there.HandedBack() && t.displaces(there) {
		return false
	}
	return t.sameHistory(there) || there.supersedes(t)
}

// HandedBack reports whether the ticket is a note: prefill has its KV, and decode holds nothing for it.
func (t *Ticket) HandedBack() bool { return t.Prefill != "" }

// HandedBack reports whether the branch belongs to a note.
func (b *Branch) HandedBack() bool { return b.Prefill != "" }

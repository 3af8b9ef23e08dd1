package convcache

import "time"

// NoteTTL is how long a note lives. The KV that it refers to lives as long as prefill's cache has space for it, which
// nothing reports.
const NoteTTL = time.Hour

// Note returns the note that replaces the ticket once the KV of its tokens is in the prefix cache of that prefill
// incarnation: the same branch of the conversation, without blocks of decode.
func (t Ticket) Note(prefill Holder, now time.Time) Ticket {
	t.Decode, t.Prefill, t.Deadline = Holder{}, prefill, now.Add(NoteTTL)
	return Ticket{Branch: t.Branch}
}

// OutdatedBy reports whether a branch of the conversation makes the note useless: the branch covers all tokens of the
// note, and it is a ticket or covers more. Then a later turn has stored the branch, and its ticket is worth more than the
// note of the turn before. Of two notes for the same tokens, the later one is useful.
func (b *Branch) OutdatedBy(there *Branch) bool {
	if there.HandedBack() && b.Displaces(there) {
		return false
	}
	return there.supersedes(b)
}

// HandedBack reports whether the branch is that of a note: prefill has its KV, and decode holds nothing for it.
func (b *Branch) HandedBack() bool { return b.Prefill.Instance != "" }

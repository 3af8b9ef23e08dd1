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

// aliasOf is what an alias has in place of the name of a prefill instance.
const aliasOf = "\x00alias"

// Alias returns a note that leads from a second key to home, the key under which the tickets of a conversation are. Under one key an alias
// replaces an earlier one of the same home. It counts for an account.
func Alias(account string, home Key, now time.Time) Ticket {
	return Ticket{Branch: Branch{
		ID: TicketID(home[:]), Account: account, Prefill: Holder{aliasOf, string(home[:])}, FreshAsOf: now, Deadline: now.Add(NoteTTL),
	}}
}

// alias returns 1 for an alias, else 0.
func (b *Branch) alias() int {
	if b.Prefill.Instance == aliasOf {
		return 1
	}
	return 0
}

// Home returns the key to which an alias leads, and false for any other branch.
func (b *Branch) Home() (home Key, alias bool) {
	if b.alias() == 0 || len(b.Prefill.Incarnation) != len(home) {
		return home, false
	}
	return Key([]byte(b.Prefill.Incarnation)), true
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

package convcache

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"time"
)

// TicketID names one ticket among all that were ever made.
type TicketID [16]byte

// NewTicketID returns a random id.
func NewTicketID() TicketID {
	var id TicketID
	rand.Read(id[:]) // since Go 1.24 it fills the slice or ends the process
	return id
}

// String returns the id as 32 hex characters.
func (id TicketID) String() string { return hex.EncodeToString(id[:]) }

// Ticket is the right to read, once, the KV blocks that a decode instance holds at the end of a turn: a branch of the conversation, and what
// an engine is sent for its blocks.
type Ticket struct {
	Branch
	// Params is decode's kv_transfer_params, raw JSON. Stores copy it on the way in.
	Params []byte
	// Reading is what the connector parsed of Params when the ticket was made, nil if that is not known. It is never
	// changed, and does not refer to Params. Only a store in this process keeps it.
	Reading any
	// EngineID is remote_engine_id, by which decode recognises its own tickets.
	EngineID string
}

// Branch is one line of a conversation's history, and where its KV is: what a look-up returns of a ticket without taking it.
type Branch struct {
	// ID is made with NewTicketID, and stays when the ticket is put back.
	ID TicketID
	// Account is for whom the branch counts against the bounds of a store in this process, which alone keeps it.
	Account string
	// Decode holds the blocks. After a restart they are gone.
	Decode Holder
	// Tokens is remote_num_tokens, the tokens whose KV the blocks hold.
	Tokens int
	// Chain identifies those tokens. The zero Chain means that nothing proves them: look-ups by tokens offer nothing
	// of such a ticket. Stores share its Blocks with the caller; they are never changed.
	Chain Chain
	// Outline has a tag of each part of the request whose answer left the ticket, nil if that is not known; see
	// [ChainKey.Outline]. Stores share it with the caller; it is never changed.
	Outline []uint32
	// Prefill is what the KV was handed back to. A ticket that has it is a note: it names no blocks, and is never sent to an engine.
	Prefill Holder
	// SharedPrefixTokens is how many tokens prefill found in its caches for the first turn of the conversation, as far
	// as that is known: the beginning that it shares with other prompts.
	SharedPrefixTokens int
	// Epoch is the fleet's epoch in which the legs of the turn were sent (package quarantine).
	Epoch int64
	// Prefilled says which of the tokens prefill's own prefix caches hold, as far as that is known. Stores share it
	// with the caller; it is never changed.
	Prefilled []Prefilled
	// FreshAsOf is a moment at which nothing of the answer's end had arrived. The age of a hit counts from here.
	FreshAsOf time.Time
	// Deadline is the moment from which on the ticket must not be used. Put sets it, and never later than it was.
	Deadline time.Time
}

// KeyedBranch is a branch and the conversation under which it is stored.
type KeyedBranch struct {
	Key Key
	Branch
}

// Holder is an engine that holds KV: an instance, and the process_start_time_seconds of its incarnation as the engine printed it.
type Holder struct{ Instance, Incarnation string }

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

// outlineVersion begins the input from which the key of outlines is derived.
const outlineVersion byte = 6

// OutlineKey returns the key of all outlines under this secret.
func (s Secret) OutlineKey() ChainKey { return NewTagKey(s.Derive(outlineVersion, []byte("outline"))) }

// Outline returns what a ticket keeps of a request that is known by hashes of its parts: half of a keyed hash of each,
// made with the ticket's id. So a reader of the store sees neither what was written nor which requests have a part in common.
func (k ChainKey) Outline(id TicketID, parts []uint64) []uint32 {
	words := make([]uint32, 0, len(id)/4)
	for at := 0; at < len(id); at += 4 {
		words = append(words, binary.LittleEndian.Uint32(id[at:]))
	}
	outline := make([]uint32, len(parts))
	for i, part := range parts {
		outline[i] = uint32(sipHash(k, part, words, false))
	}
	return outline
}

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

// supersedes reports whether b can do all that an older branch can.
func (b *Branch) supersedes(older *Branch) bool { return older.Chain.Relation(b.Chain) == Contained }

// Displaces reports whether b makes an older branch superfluous. A note never makes a ticket superfluous: decode
// certainly has the ticket's KV, and prefill may have evicted the note's.
func (b *Branch) Displaces(older *Branch) bool {
	return (older.HandedBack() || !b.HandedBack()) && b.supersedes(older)
}

// Outcome says how a store operation ended. All but Found, Taken and Stored are misses.
type Outcome int

// The outcomes. The zero value is a miss, so that an outcome that was not set grants nothing.
const (
	// Unavailable: the store did not answer within ctx, or (Peek, Take) ctx had ended before. From every method.
	// After a Take the caller must treat the ticket as spent. After a Put it must treat the ticket as another
	// caller's, because it may have been stored.
	Unavailable Outcome = iota
	// Found: at least one usable branch. From Peek.
	Found
	// Taken: the ticket is the caller's, and no other's from now on. From Take.
	Taken
	// Stored: the ticket can be found and taken until its deadline. From Put.
	Stored
	// Empty: nothing is kept for any of the keys. From Peek.
	Empty
	// Expired: all tickets of all keys have passed their deadline (Peek); the ticket has passed its deadline, and is
	// gone (Take); or the ticket has no time left, and is not stored (Put).
	Expired
	// Consumed: the ticket is not there any more. From Take.
	Consumed
	// Fenced: the ticket was put while another server, or another incarnation of this server, was master,
	// and is gone. It may have been taken there. From Take.
	Fenced
	// Refused: the ticket alone is larger than the store may grow, and is not stored. From Put.
	Refused
	// Superseded: the note is not stored. Another branch serves every prompt that the note would serve, or the conversation
	// has four tickets already. From Put, for notes only.
	Superseded
	// NotStored: ctx had ended before anything was done, so that the ticket is certainly not stored. From Put.
	NotStored
)

// String returns the outcome in lower case, for logs and metrics.
func (o Outcome) String() string {
	switch o {
	case Unavailable:
		return "unavailable"
	case Found:
		return "found"
	case Taken:
		return "taken"
	case Stored:
		return "stored"
	case Empty:
		return "empty"
	case Expired:
		return "expired"
	case Consumed:
		return "consumed"
	case Fenced:
		return "fenced"
	case Refused:
		return "refused"
	case Superseded:
		return "superseded"
	case NotStored:
		return "not_stored"
	}
	return "unknown"
}

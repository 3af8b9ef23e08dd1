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
	rand.Read(id[:]) // since Go 1.24 it never fails
	return id
}

// String returns the id as 32 hex characters.
func (id TicketID) String() string { return hex.EncodeToString(id[:]) }

// Ticket is the right to read, once, the KV blocks that decode holds after a turn.
type Ticket struct {
	Branch
	// Params is decode's kv_transfer_params, raw JSON. Stores copy it.
	Params []byte
	// Reading is the connector's parsed form of Params, nil if unknown. It never changes and does not refer to Params. Only a store in this
	// process keeps it.
	Reading any
	// EngineID is remote_engine_id, by which decode recognises its own tickets.
	EngineID string
}

// Branch is one line of a conversation's history, and the place of its KV. A look-up returns it without taking the ticket.
type Branch struct {
	// ID comes from NewTicketID, and stays when the ticket is put back.
	ID TicketID
	// Account is the account that the branch counts for in this process; other stores do not keep it.
	Account string
	// Decode holds the blocks. After its restart they are gone.
	Decode Holder
	// Tokens is remote_num_tokens, the number of tokens whose KV the blocks hold.
	Tokens int
	// Chain identifies those tokens. The zero Chain proves nothing, so the ticket is never offered. Stores share Blocks, which never change.
	Chain Chain
	// Outline has a tag for each part of the request before the answer, nil if unknown; see [ChainKey.Outline]. Stores share it; it never
	// changes.
	Outline []uint32
	// Prefill is the incarnation that the KV was handed back to. A ticket with it is a note: it names no blocks and goes to no engine.
	Prefill Holder
	// SharedPrefixTokens is how many tokens prefill found in its caches at the conversation's first turn, as far as is known: the prefix
	// that it shares with other prompts.
	SharedPrefixTokens int
	// Epoch is the fleet's epoch when the turn's legs were sent (package quarantine).
	Epoch int64
	// Prefilled says how many of the tokens are in prefix caches of prefill, as far as is known. Stores share it; it never changes.
	Prefilled []Prefilled
	// FreshAsOf is a moment at which nothing of the answer's end had arrived. The age of a hit counts from here.
	FreshAsOf time.Time
	// Deadline ends the use of the ticket. Put sets it, never later than it was.
	Deadline time.Time
}

// KeyedBranch is a branch with the key of its conversation.
type KeyedBranch struct {
	Key Key
	Branch
}

// Holder is an engine that holds KV: an instance, and process_start_time_seconds of its incarnation as printed.
type Holder struct{ Instance, Incarnation string }

// Prefilled says how many of a ticket's tokens a prefill instance has in its prefix cache: the tokens of the last prompt that was sent there.
type Prefilled struct {
	Prefill Holder
	Tokens  int
}

// MaxPrefilled is how many prefix caches a ticket lists in Prefilled.
const MaxPrefilled = 8

// AddPrefilled adds an entry to known, which it may change. It keeps the largest entry of each cache, and the MaxPrefilled largest of all.
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

const outlineVersion byte = 6

// OutlineKey returns the key of all outlines under this secret.
func (s Secret) OutlineKey() ChainKey { return NewTagKey(s.Derive(outlineVersion, []byte("outline"))) }

// Outline returns half of a keyed hash of each part of a request, made with the ticket's id. A reader of the store sees neither the text nor
// which requests share a part.
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

// NoteTTL is how long a note lives. Its KV lives as long as prefill's cache has space, which nothing reports.
const NoteTTL = time.Hour

// Note returns the note that replaces the ticket once its KV is in prefill's cache: the same branch without blocks of decode.
func (t Ticket) Note(prefill Holder, now time.Time) Ticket {
	t.Decode, t.Prefill, t.Deadline = Holder{}, prefill, now.Add(NoteTTL)
	return Ticket{Branch: t.Branch}
}

const aliasOf = "\x00alias"

// Alias returns a note that leads from a second key to home, the key of the tickets. It replaces an earlier alias of the same home.
func Alias(account string, home Key, now time.Time) Ticket {
	return Ticket{Branch: Branch{
		ID: TicketID(home[:]), Account: account, Prefill: Holder{aliasOf, string(home[:])}, FreshAsOf: now, Deadline: now.Add(NoteTTL),
	}}
}

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

// OutdatedBy reports whether a branch makes the note useless: it covers all tokens of the note, and it is a ticket or covers more. Of two
// notes for the same tokens the later one is useful.
func (b *Branch) OutdatedBy(there *Branch) bool {
	if there.HandedBack() && b.Displaces(there) {
		return false
	}
	return there.supersedes(b)
}

// HandedBack reports whether the branch is a note: prefill has its KV, and decode holds nothing for it.
func (b *Branch) HandedBack() bool { return b.Prefill.Instance != "" }

func (b *Branch) supersedes(older *Branch) bool { return older.Chain.containedIn(b.Chain) }

// Displaces reports whether b makes an older branch superfluous. A note never displaces a ticket: decode certainly has the ticket's KV, and
// prefill may have evicted the note's.
func (b *Branch) Displaces(older *Branch) bool {
	return (older.HandedBack() || !b.HandedBack()) && b.supersedes(older)
}

// Outcome says how a store operation ended. All but Found, Taken and Stored are misses.
type Outcome int

// The outcomes. The zero value is a miss, so that an unset outcome grants nothing.
const (
	// Unavailable: the store did not answer within ctx, or (Peek, Take) ctx had ended before. After a Take the ticket counts as spent. After
	// a Put it may be stored, and another caller's.
	Unavailable Outcome = iota
	// Found: at least one usable branch. From Peek.
	Found
	// Taken: the ticket is the caller's, and nobody else's. From Take.
	Taken
	// Stored: the ticket can be found and taken until its deadline. From Put.
	Stored
	// Empty: there is nothing for any of the keys. From Peek.
	Empty
	// Expired: all tickets of all keys have expired (Peek); the ticket has expired and is gone (Take); the ticket has no time left and is not
	// stored (Put).
	Expired
	// Consumed: the ticket is not there any more. From Take.
	Consumed
	// Fenced: the ticket was put under another master, or another incarnation of this one. It may have been taken there, and is gone. From
	// Take.
	Fenced
	// Refused: the ticket alone exceeds the bound of the store, and is not stored. From Put.
	Refused
	// Superseded: the note is not stored: another branch serves all its prompts, or the conversation has four tickets. From Put.
	Superseded
	// NotStored: ctx had ended before anything was done, so the ticket is certainly not stored. From Put.
	NotStored
)

// String returns the outcome in lower case, for logs and metrics.
func (o Outcome) String() string {
	names := [...]string{
		"unavailable", "found", "taken", "stored", "empty", "expired", "consumed", "fenced", "refused", "superseded", "not_stored",
	}
	if o >= 0 && int(o) < len(names) {
		return names[o]
	}
	return "unknown"
}

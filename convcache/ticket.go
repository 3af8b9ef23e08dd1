package convcache

import (
	"crypto/rand"
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

package convcache

import (
	"context"
	"errors"
	"time"
)

// Store keeps tickets between turns. It is safe for concurrent use. Every method returns within the store's time limit. A failure is an outcome, which
// costs a miss.
type Store interface {
	// Peek lists the tickets and notes of at most [MaxKeys] keys, in the order of the keys and the newest of each first. It removes none.
	Peek(ctx context.Context, keys []Key) ([]KeyedBranch, Outcome)
	// Take removes the ticket with this id. At most one caller gets it.
	Take(ctx context.Context, key Key, id TicketID) (Ticket, Outcome)
	// Put stores a ticket for ttl and returns the tickets that it displaced.
	Put(ctx context.Context, key Key, t Ticket, ttl time.Duration) ([]Ticket, Outcome)
	// Len is the number of conversations with a ticket or note in the store.
	Len() int
	// EvictStale drops expired tickets and returns how many conversations it removed.
	EvictStale() int
}

// Remote is a store that replicas share. It is safe for concurrent use, and takes as long as ctx grants. After an error the operation may
// have been applied, or may yet be, and the error counts as a failure of the store, unless a RemoteError says otherwise. No error contains a
// credential. Outcomes mean the same as for Memory, and nothing next to an error.
type Remote interface {
	// Test puts and takes a ticket of no conversation, as turns do. The error wraps ErrRemoteForbids if waiting does not help.
	Test(ctx context.Context) error

	// Peek returns usable branches of the first MaxKeys keys, in the order of Memory: Found, Empty or Expired. It makes one round trip to
	// each server that has one of the keys. Next to an error it returns the branches of the keys that it could read; that is one failure.
	Peek(ctx context.Context, keys []Key) ([]KeyedBranch, Outcome, error)
	// Take removes and returns one ticket: Taken, Consumed, Expired or Fenced. The ticket is gone after each of these.
	Take(ctx context.Context, key Key, id TicketID) (Ticket, Outcome, error)
	// Put stores a ticket until its deadline, which is set, and returns displaced tickets: Stored, Expired or, for a note, Superseded.
	Put(ctx context.Context, key Key, t Ticket) ([]Ticket, Outcome, error)
	// Count returns the number of conversations, including those with only notes.
	Count(ctx context.Context) (int, error)

	// Mark publishes a value under a name, such as that an engine is quarantined, for all replicas.
	Mark(ctx context.Context, name, value string) error
	// Marks returns the last values of at least one name.
	Marks(ctx context.Context, names []string) (map[string]string, error)
	// Epoch returns the highest epoch in an answer of the store: each Peek, and each Take that returns a ticket, reads it. No replica uses
	// a ticket from before the epoch.
	Epoch() int64
	// ShareEpoch raises the store's epoch to own if it is lower, else by one if risen, and reads it. An epoch never falls.
	ShareEpoch(ctx context.Context, own int64, risen bool) error
	// SharePinned publishes how many tokens this replica pins on an incarnation of decode, and returns the numbers that other
	// replicas published within PinnedLife.
	SharePinned(ctx context.Context, incarnation string, tokens int) (others []int, err error)
}

// PinnedLife is how long a replica's number of pinned tokens counts. Each replica publishes once a second.
const PinnedLife = 5 * time.Second

// ErrRemoteForbids says that the store answers but refuses or lacks what is needed.
var ErrRemoteForbids = errors.New("redis forbids what is needed")

// RemoteError says what a failed operation changed, and what it shows about the store.
type RemoteError struct {
	Err error
	// Unapplied means that the operation has certainly changed nothing, and never will.
	Unapplied bool
	Shows     Shown
}

// Shown is what an error shows about a Remote.
type Shown int

// What an error shows.
const (
	// ShowsFailure: the store does not do what is needed.
	ShowsFailure Shown = iota
	// ShowsAnswer: the store answers, and only this conversation has a fault.
	ShowsAnswer
	// ShowsNothing: nothing was sent, or the size of the request explains the error.
	ShowsNothing
)

// Error returns the text of the cause.
func (e *RemoteError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *RemoteError) Unwrap() error { return e.Err }

// told returns what an error says; without a RemoteError it is a failure of the store.
func told(err error) RemoteError {
	if e, ok := errors.AsType[*RemoteError](err); ok {
		return *e
	}
	return RemoteError{}
}

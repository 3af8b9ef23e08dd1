package convcache

import (
	"context"
	"errors"
	"time"
)

// Remote is a store that replicas share, as Shared uses it. All methods are safe for concurrent use and take as long
// as ctx grants. After an error the operation may have been applied, or may yet be, and the error counts as a failure
// of the store, unless it is a RemoteError that says otherwise. The text of an error contains no credential. Outcomes mean what they mean for
// Memory; next to an error they mean nothing.
type Remote interface {
	// Test puts a ticket of no conversation and takes it, just as turns do. The error wraps ErrRemoteForbids if
	// waiting does not help.
	Test(ctx context.Context) error

	// Peek returns the usable branches of at most MaxKeys different keys, in the order of Memory, in one round trip to
	// each server that has one of them: Found, Empty or Expired. It is one operation, of which an error is one failure.
	// Next to an error the branches are those of the keys that could be read.
	Peek(ctx context.Context, keys []Key) ([]KeyedBranch, Outcome, error)
	// Take removes and returns one ticket: Taken, Consumed, Expired or Fenced. The ticket is gone after each of these.
	Take(ctx context.Context, key Key, id TicketID) (Ticket, Outcome, error)
	// Put keeps a ticket until its deadline, which is set, and returns the tickets that it removed: Stored, Expired
	// or, for a note, Superseded.
	Put(ctx context.Context, key Key, t Ticket) ([]Ticket, Outcome, error)
	// Count returns the number of conversations, including those with only notes.
	Count(ctx context.Context) (int, error)

	// Mark publishes a value under a name: a mark of an engine, such as that it is quarantined, so that no replica sends a prefill leg to it.
	Mark(ctx context.Context, name, value string) error
	// Marks returns the values that were published last under those of at least one name that have any.
	Marks(ctx context.Context, names []string) (map[string]string, error)
	// Epoch returns the highest epoch that an answer of the store has shown. Each Peek and each Take that returns a
	// ticket shows the store's. No replica uses a ticket from before the epoch.
	Epoch() int64
	// ShareEpoch raises the store's epoch to own if it is lower, and otherwise by one if risen, and shows it. An
	// epoch never falls.
	ShareEpoch(ctx context.Context, own int64, risen bool) error
	// SharePinned tells other replicas how many tokens this one pins on an incarnation of decode, and returns what each
	// of those has told that have within PinnedLife.
	SharePinned(ctx context.Context, incarnation string, tokens int) (others []int, err error)
}

// PinnedLife is how long what a replica has told of its pinned tokens counts. It tells once a second.
const PinnedLife = 5 * time.Second

// ErrRemoteForbids is in the error of a Test if the store answers but may not, or can't, do what is needed.
var ErrRemoteForbids = errors.New("redis forbids what is needed")

// RemoteError says what a failed operation has changed, and what its failure shows about the store.
type RemoteError struct {
	Err error
	// Unapplied says that the operation has certainly changed nothing, and never will.
	Unapplied bool
	// Shows is what the error shows about the store.
	Shows Shown
}

// Shown is what the error of an operation shows about a Remote.
type Shown int

// What an error shows.
const (
	// ShowsFailure: the store does not do what is needed.
	ShowsFailure Shown = iota
	// ShowsAnswer: the store answers, and only this conversation has a fault.
	ShowsAnswer
	// ShowsNothing: nothing was sent, or the size of what was sent explains the error.
	ShowsNothing
)

// Error returns the text of the cause.
func (e *RemoteError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *RemoteError) Unwrap() error { return e.Err }

// unapplied reports whether an operation that returned err has certainly changed nothing.
func unapplied(err error) bool {
	var e *RemoteError
	return errors.As(err, &e) && e.Unapplied
}

// shownBy returns what the result of an operation shows about the store.
func shownBy(err error) Shown {
	var e *RemoteError
	switch {
	case err == nil:
		return ShowsAnswer
	case errors.As(err, &e):
		return e.Shows
	}
	return ShowsFailure
}

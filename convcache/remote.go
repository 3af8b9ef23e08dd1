package convcache

import (
	"context"
	"errors"
)

// Remote is a store that replicas share, as Shared uses it. All methods are safe for concurrent use and take as long
// as ctx grants. An error is of an operation that may have been applied, or may yet be, and that shows a failure of
// the store, unless it is a RemoteError and says otherwise. Its text repeats no credential.
type Remote interface {
	RemoteTickets
	RemoteIncarnations
	RemoteQuarantines
	// Test puts a ticket of no conversation and takes it, in the very way in which turns do.
	// ErrRemoteForbids is in an error that waiting does not mend.
	Test(ctx context.Context) error
}

// RemoteTickets are the tickets of a Remote. An outcome means what Memory means by it, and nothing beside an error.
type RemoteTickets interface {
	// Peek returns the usable branches, newest first: Found, Empty or Expired.
	Peek(ctx context.Context, key Key) ([]Branch, Outcome, error)
	// Take removes and returns one ticket: Taken, Consumed, Expired or Fenced. It is gone after each.
	Take(ctx context.Context, key Key, id TicketID) (Ticket, Outcome, error)
	// Put keeps a ticket until its deadline, which is set, and returns those that it removed: Stored, Expired or, of a note,
	// Superseded.
	Put(ctx context.Context, key Key, t Ticket) ([]Ticket, Outcome, error)
	// Count returns the number of conversations, those included of which there are only notes.
	Count(ctx context.Context) (int, error)
}

// RemoteIncarnations are the quarantines of a Remote: incarnations of prefill instances that no replica sends a prefill leg to.
type RemoteIncarnations interface {
	// QuarantineIncarnation quarantines an incarnation.
	QuarantineIncarnation(ctx context.Context, incarnation string) error
	// QuarantinedIncarnations says of each incarnation, of which there is one at least, whether it is quarantined.
	QuarantinedIncarnations(ctx context.Context, incarnations []string) ([]bool, error)
}

// RemoteQuarantines are what replicas tell each other of KV that is in doubt.
type RemoteQuarantines interface {
	// Quarantine publishes one; of the same incarnation and space the one that was published last is kept.
	Quarantine(ctx context.Context, q Quarantine) error
	// Quarantines returns what any replica has published.
	Quarantines(ctx context.Context) ([]Quarantine, error)
}

// ErrRemoteForbids is in the error of a Test when the store answers but must not, or can't, do what is needed.
var ErrRemoteForbids = errors.New("redis forbids what is needed")

// RemoteError says what an operation that failed has done, and what that says of the store.
type RemoteError struct {
	Err error
	// Unapplied says that it is certain that nothing was changed, and never will be by this operation.
	Unapplied bool
	// Shows is what the error says of the store.
	Shows Shown
}

// Shown is what the error of an operation says of a Remote.
type Shown int

// What an error shows.
const (
	// ShowsFailure: the store does not do what is needed.
	ShowsFailure Shown = iota
	// ShowsAnswer: the store answers, and what is wrong is wrong with this conversation alone.
	ShowsAnswer
	// ShowsNothing: nothing was sent, or the size of what was explains the error.
	ShowsNothing
)

// Error is that of the cause.
func (e *RemoteError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *RemoteError) Unwrap() error { return e.Err }

// unapplied says whether it is certain that an operation which ended so has changed nothing.
func unapplied(err error) bool {
	var e *RemoteError
	return errors.As(err, &e) && e.Unapplied
}

// shownBy returns what the end of an operation says of the store.
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

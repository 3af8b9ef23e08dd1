package sse

import (
	"errors"
	"time"
)

// Event is one dispatched event, valid only during the call to Observe.
type Event struct {
	// Data is the values of the data lines joined with LF (WHATWG HTML 9.2.6), as the engine sent them. A stripped member that is null may
	// already be missing.
	Data []byte
	// Member is the raw value of Config.Strip at the top level of Data, nil if absent or null.
	Member []byte
	// Split means that the event came in several reads, and that Config.Begin was called after the first.
	Split bool

	edits *edits
}

// Verdict says what the relay does with an observed event.
type Verdict int

const (
	// Forward relays the event without the stripped member.
	Forward Verdict = iota
	// Hold keeps the event back until the next event is forwarded, or until a clean end. Comments behind it go out first. If more than
	// Config.MaxEvent bytes are held, the relay releases all of them.
	Hold
	// Await is Hold until the next event with another verdict than Await or Stop, or until Config.Patience has passed.
	Await
	// Drop removes the event.
	Drop
	// Supersede forwards the event in place of the last held event, and of the comments after that. Without a held event it means Drop.
	Supersede
	// Stop ends the relay: neither the event nor held bytes are written, and Run returns ErrStopped.
	Stop
)

// DefaultMaxEvent is the 1 MiB that transfer parameters may have, and 64 KiB for the rest of their chunk.
const DefaultMaxEvent = 1<<20 + 64<<10

// Config says what a Relay looks for. The zero value relays everything and observes nothing.
type Config struct {
	// Strip is the JSON member to cut from every event, "" for none.
	Strip string
	// Substance names members; after a cut at least one must be non-empty (not absent, null, [] or {}), or the event is dropped, because
	// OpenAI clients index choices[0] of any chunk without usage. An empty list drops nothing. Event.Replace does not count.
	Substance []string
	// MaxEvent is the length in bytes above which an event passes unobserved, neither held nor cut; 0 means DefaultMaxEvent. A longer comment
	// passes as it arrives.
	MaxEvent int
	// Room asks for n bytes of memory before an event of more than DefaultMaxEvent bytes is held, and each time that it has doubled. Without
	// memory the event passes as if longer than MaxEvent. Room(0) gives the event's memory back. Nil always has room.
	Room func(n int64) bool
	// Blank names members that become null in an event that passes (rawjson.Blanks).
	Blank []string
	// Unread gets the beginning of an event that is too long to be observed, before any of it goes out. It may be nil.
	Unread func(head []byte)
	// Bounded makes a longer event end the relay with ErrOversize, for streams whose every event must be observed.
	Bounded bool
	// Patience is how long Await keeps bytes back during a read; 0 is for ever.
	Patience time.Duration
	// Complete reports at a clean end whether the answer is whole. A gateway or an engine that gives an answer up can end its chunks in order;
	// that counts as broken off. Nil takes each clean end as the answer's.
	Complete func() bool
	// Begin is called when a read ends within an event that began in it, so that the caller can note when the beginning arrived. An event that
	// is not Split arrived with the last read before Observe. Begin may be nil.
	Begin func()
	// Memory provides the stream's buffer, until Run returns; nil for none.
	Memory *Memory
	// Observe is called for each event with data, in order, before its bytes go out. Nil forwards all.
	Observe func(Event) Verdict
}

// Stats counts what a Relay has done.
type Stats struct {
	Bytes    int64 // written to the client
	Events   int64 // observed
	Oversize int64 // events longer than Config.MaxEvent
	// MidEvent means that the client has part of an unfinished event, so that no event can follow. It means nothing after a *WriteError.
	MidEvent bool
}

// ErrStopped is the result of Run after the verdict Stop.
var ErrStopped = errors.New("relay stopped by its observer")

// ErrOversize is the result of Run for an event above Config.MaxEvent with Config.Bounded. Neither the event nor held bytes are written.
var ErrOversize = errors.New("event is longer than the bound")

var errNoEnd = errors.New("the stream ends before the end of its answer")

// ReadError is a failure to read from the engine. Complete events are written; the unfinished one and held bytes are not, see Stats.MidEvent.
type ReadError struct{ Err error }

// Error has the cause.
func (e *ReadError) Error() string { return "read stream: " + e.Err.Error() }

// Unwrap returns the reader's error.
func (e *ReadError) Unwrap() error { return e.Err }

// WriteError is a failure to write or flush. How much of the last write arrived is unknown.
type WriteError struct{ Err error }

// Error has the cause.
func (e *WriteError) Error() string { return "write stream: " + e.Err.Error() }

// Unwrap returns the writer's or the flusher's error.
func (e *WriteError) Unwrap() error { return e.Err }

// AppendError appends one event with errorJSON, which has no line ends, in the form of vLLM's own mid-stream errors (`data: {"error": ...}`).
func AppendError(dst, errorJSON []byte) []byte {
	return append(append(append(dst, oneLineName...), errorJSON...), "\n\n"...)
}

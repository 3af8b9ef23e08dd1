package sse

import (
	"errors"
	"time"
)

// Event is one dispatched event, valid only during the call to Observe.
type Event struct {
	// Data is the data buffer: the values of the data lines joined with LF (WHATWG HTML 9.2.6), as the engine sent them. If the
	// stripped member is null, it may be missing from Data already.
	Data []byte
	// Member is the raw JSON value of Config.Strip at the top level of Data, nil if it is absent or null.
	Member []byte
	// Split says that the event came in several reads, and that Config.Begin was called after the first of them.
	Split bool

	edits *edits
}

// Verdict says what the relay does with an observed event.
type Verdict int

const (
	// Forward relays the event, without the member that is stripped.
	Forward Verdict = iota
	// Hold keeps the event's bytes back until the next event is forwarded, or until a clean end of the stream. Comments that
	// follow go out at once, before it. If more than Config.MaxEvent bytes are held, the relay releases all of them.
	Hold
	// Await is Hold until the next event with another verdict than Await or Stop, or until Config.Patience has passed.
	Await
	// Drop removes the event; the client never sees it.
	Drop
	// Supersede forwards the event in place of the last held event. The client sees neither that event nor the comments
	// after it. If no event is held, Supersede means Drop.
	Supersede
	// Stop ends the relay: neither the event nor what is held back is written, and Run returns ErrStopped.
	Stop
)

// DefaultMaxEvent is the default of Config.MaxEvent: the 1 MiB that transfer parameters may have, plus 64 KiB for the
// rest of their chunk.
const DefaultMaxEvent = 1<<20 + 64<<10

// Config says what a Relay looks for. The zero value relays everything and observes nothing.
type Config struct {
	// Strip is the name of the JSON member that is cut out of every event, "" for none.
	Strip string
	// Substance names members of which at least one must be non-empty after a cut (absent, null, [] and {} are empty);
	// otherwise the event is dropped, because OpenAI clients index choices[0] of any chunk without usage. An empty
	// list drops nothing. Changes by Event.Replace do not count.
	Substance []string
	// MaxEvent is the length in bytes above which an event passes without being held, observed or cut; 0 means DefaultMaxEvent. A longer comment is passed on as it arrives.
	MaxEvent int
	// Room is asked for n bytes of memory before an event of more than DefaultMaxEvent bytes is held, and each time that it has doubled.
	// Without them the event passes like one that is longer than MaxEvent. Room(0) gives back what the event had. Nil means that there is
	// always room.
	Room func(n int64) bool
	// Blank are names of members that are null in an event that passes (rawjson.Blanks).
	Blank []string
	// Unread is told the beginning of an event that is too long to be observed, before any of it goes out. Unread may be nil.
	Unread func(head []byte)
	// Bounded makes a longer event end the relay with ErrOversize. It is for streams of which the client must see no event that
	// was not observed.
	Bounded bool
	// Patience is how long a read may last until what the verdict Await keeps back goes out; 0 is for ever.
	Patience time.Duration
	// Complete reports, at a clean end, whether nothing of the answer is missing; if it is, the stream has broken off: chunks that end in order
	// are all that is left of an answer when a gateway or an engine gives it up. Nil takes each clean end for the answer's.
	Complete func() bool
	// Begin is called when a read ends in the middle of an event that began in it, before the next read. What the source knows of its
	// last read then concerns the beginning of that event. For an event that is not Split, it concerns the whole event when the event
	// is observed. So the caller asks for the age of an event only where it matters. Begin may be nil.
	Begin func()
	// Memory provides the stream's buffer, and takes it back when Run returns; nil for none.
	Memory *Memory
	// Observe is called for each event with data, in order, before its bytes go out. Nil forwards all.
	Observe func(Event) Verdict
}

// Stats counts what a Relay has done.
type Stats struct {
	Bytes    int64 // written to the client
	Events   int64 // observed
	Oversize int64 // events longer than Config.MaxEvent
	// MidEvent says that the client has received part of an event that is not finished, so that no further event can
	// follow. It means nothing after a *WriteError.
	MidEvent bool
}

// ErrStopped is what Run returns after a verdict of Stop.
var ErrStopped = errors.New("relay stopped by its observer")

// ErrOversize is returned by Run if Config.Bounded is set and an event is longer than Config.MaxEvent. The relay has written
// neither the event nor the bytes that it held back.
var ErrOversize = errors.New("event is longer than the bound")

// errNoEnd says that a stream has ended without an error but also without the end of its answer.
var errNoEnd = errors.New("the stream ends before the end of its answer")

// ReadError is a failure to read from the engine. Complete events that came before it have been written. The unfinished event
// and the held bytes have not; Stats.MidEvent tells the exception.
type ReadError struct{ Err error }

// Error says that reading failed, and how.
func (e *ReadError) Error() string { return "read stream: " + e.Err.Error() }

// Unwrap returns the reader's error.
func (e *ReadError) Unwrap() error { return e.Err }

// WriteError is a failure to write to the client or to flush. How much of the last write arrived is unknown.
type WriteError struct{ Err error }

// Error says that writing failed, and how.
func (e *WriteError) Error() string { return "write stream: " + e.Err.Error() }

// Unwrap returns the writer's or the flusher's error.
func (e *WriteError) Unwrap() error { return e.Err }

// AppendError appends one event whose data is errorJSON, which has no line ends, in the shape of vLLM's own mid-stream errors
// (`data: {"error": ...}`), and returns the extended slice.
func AppendError(dst, errorJSON []byte) []byte {
	return append(append(append(dst, oneLineName...), errorJSON...), "\n\n"...)
}

package sse

import "carryover/sse/rawjson"

// Event is one dispatched event, valid only during the call to Observe.
type Event struct {
	// Data is the data buffer: the values of the data lines joined with LF (WHATWG HTML 9.2.6), as the engine sent them. A member
	// that is to be stripped and is null may be gone from it already.
	Data []byte
	// Member is the raw JSON value of Config.Strip at the top level of Data, nil if it is absent or null.
	Member []byte
	// Split says that the event came in several reads, and that Config.Begin was called after the first of them.
	Split bool

	edits *edits
}

// Replace has the client see with where the engine sent Data[from:to], and reports whether it will. It holds for Forward
// and Hold; with is copied. Ranges may come in any order and may lie next to each other. Refused, without effect, is what
// could not be done or would not be seen as meant:
//   - a range that is empty, leaves Data, or begins or ends with an LF (which joins two data lines)
//   - a range that overlaps the member that is cut, with its comma, or one that was replaced before: the first counts
//   - bytes with a CR or LF, which would end the line
//   - any call after Observe has returned
//
// One thing can't be seen: where no space stands after the colon, a client takes a space that begins the line for it
// (WHATWG HTML 9.2.6). In JSON that space means nothing.
func (e Event) Replace(from, to int, with []byte) bool {
	return e.edits != nil && e.edits.replace(rawjson.Span{From: from, To: to}, with)
}

// Shown returns what the client would see of Data: without the member that is cut, and with the replaced ranges.
func (e Event) Shown() []byte {
	if e.edits == nil {
		return e.Data
	}
	return e.edits.shown(e.Data)
}

// Supplant replaces all of Data for the client, whatever was cut or replaced in it before, and reports whether it did.
// with is copied. It refuses bytes with a CR or LF, Data that is empty or begins or ends with an LF, and any call
// after Observe has returned.
func (e Event) Supplant(with []byte) bool {
	return e.edits != nil && e.edits.supplant(with)
}

// Verdict says what becomes of an observed event.
type Verdict int

const (
	// Forward relays the event, without the member that is stripped.
	Forward Verdict = iota
	// Hold keeps the event's bytes back; they go out before the next forwarded event, or at a clean end of the stream.
	// Comments that follow wait with it while nothing has gone out; later they go out at once, before it. If more than
	// Config.MaxEvent bytes are held, all of them are released.
	Hold
	// Drop removes the event; the client never sees it.
	Drop
	// Supersede forwards the event in place of the last held event, which the client then never sees, nor comments
	// after it. Without a held event it is Drop.
	Supersede
	// Stop ends the relay: neither the event nor what is held back is written, and Run returns ErrStopped.
	Stop
)

// DefaultMaxEvent is the default of Config.MaxEvent: the 1 MiB that transfer parameters may have, and 64 KiB for the
// rest of their chunk.
const DefaultMaxEvent = 1<<20 + 64<<10

// Config says what a Relay looks for. The zero value relays everything and observes nothing.
type Config struct {
	// Strip is the name of the JSON member that is cut out of every event, "" for none.
	Strip string
	// Expose captures the member without cutting it.
	Expose bool
	// Substance names members of which at least one must be non-empty after a cut (absent, null, [] and {} are empty);
	// otherwise the event is dropped, because OpenAI clients index choices[0] of any chunk without usage. An empty
	// list drops nothing. Changes by Event.Replace do not count.
	Substance []string
	// MaxEvent is the length in bytes above which an event passes unheld, unobserved and uncut; 0 means
	// DefaultMaxEvent. A longer comment is passed on as it arrives.
	MaxEvent int
	// Bounded ends the relay with ErrOversize at a longer event. It is for streams whose events contain what clients
	// must not see and what only the observer can remove.
	Bounded bool
	// EventFirst makes comments, blank lines and events without data wait for the first event that goes out, so that
	// Stop can still take back everything before that.
	EventFirst bool
	// Begin is called when a read ends within an event that it began, before the next read. What the source knows of
	// its last read then concerns the beginning of that event; for an event that is not Split it concerns the whole
	// event when it is observed. So the age of an event is asked for only where it matters. nil is not called.
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

package sse

// Event is one dispatched event, valid only during the call to Observe.
type Event struct {
	// Data is the data buffer: the values of the data lines joined with LF (WHATWG HTML 9.2.6), as the engine sent them.
	Data []byte
	// Member is the raw JSON value of Config.Strip at the top level of Data, nil if absent.
	Member []byte
}

// Verdict says what becomes of an observed event.
type Verdict int

const (
	// Forward relays the event, without the member that is stripped.
	Forward Verdict = iota
	// Hold keeps the event's bytes back; they go out before the next forwarded event, or at a clean end of the stream.
	// Comments that follow wait with it. More than Config.MaxEvent held bytes are let go.
	Hold
	// Drop removes the event; the client never sees it.
	Drop
	// Stop ends the relay: neither the event nor what is held back is written, and Run returns ErrStopped.
	Stop
)

// DefaultMaxEvent is Config.MaxEvent where none is given: the 1 MiB that transfer parameters may have, and 64 KiB for the
// rest of their chunk.
const DefaultMaxEvent = 1<<20 + 64<<10

// Config says what a Relay looks for. The zero value relays and observes nothing.
type Config struct {
	// Strip is the name of the JSON member that is cut out of every event, "" for none.
	Strip string
	// Expose captures the member without cutting it.
	Expose bool
	// Substance names members of which at least one must remain non-empty (absent, null, [] and {} are empty) for an
	// event to be worth sending after a cut; else the event is dropped whole: OpenAI clients index choices[0] of any chunk
	// without usage. An empty list drops nothing.
	Substance []string
	// MaxEvent is the length in bytes above which an event passes unheld, unobserved and uncut; 0 means DefaultMaxEvent.
	MaxEvent int
	// Observe is called for each event with data, in order, before its bytes go out. Nil forwards all.
	Observe func(Event) Verdict
}

// Stats counts what a Relay has done.
type Stats struct {
	Bytes    int64 // written to the client
	Events   int64 // observed
	Oversize int64 // events longer than Config.MaxEvent
	// MidEvent says that the client has been sent part of an event that is not finished, so that no event can follow.
	// It says nothing after a *WriteError.
	MidEvent bool
}

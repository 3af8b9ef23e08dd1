package answer

import (
	"errors"
	"io"

	"carryover/sse"
	"carryover/upstream/body"
)

// idBytes is the most bytes that an id takes in the first chunk, with its comma. Ids of real vocabularies have six digits at most.
const idBytes = 8

// substance are the members of which an event of the completion endpoints must have one to be sent.
//
//nolint:gochecknoglobals // immutable table
var substance = []string{"choices", "usage", "error"}

// Relay returns how the stream of the answer is relayed: the reader observes each event, kv_transfer_params are cut out, and events
// are as long as the answer's ids make them.
func (a *Reader) Relay() sse.Config {
	cfg := sse.Config{
		Strip: ParamsMember, Substance: substance, MaxEvent: sse.DefaultMaxEvent + idBytes*len(a.leg.IDs.Prompt()),
		Begin: a.Begin, Observe: a.Observe,
	}
	if a.dialect != nil { // every event of a dialect matters
		cfg.Substance = nil
	}
	if a.leg.API == body.Responses {
		cfg.MaxEvent, cfg.Bounded = maxResponseEvent, true
	}
	return cfg
}

// Checked returns the stream with an error in place of a clean end that comes before the API's last event, or before the finish of each
// choice: chunks that end in order are all that is left of an answer when a gateway or an engine gives it up.
func (a *Reader) Checked(stream io.Reader) io.Reader {
	return &toTheEnd{Reader: stream, over: &a.over}
}

// Over reports whether the client has got all of the answer when everything that was seen has been forwarded.
func (a *Reader) Over() bool { return a.done && a.over }

// errNoEnd says that a stream has ended without an error but also without its last event.
var errNoEnd = errors.New("the stream ends before the end of its answer")

// toTheEnd reads a stream, and turns its clean end into errNoEnd unless over says that nothing is missing.
type toTheEnd struct {
	io.Reader
	over *bool
	end  bool
}

// Read implements io.Reader. It returns the end in a read of its own, when the observer has seen everything before it.
func (r *toTheEnd) Read(p []byte) (int, error) {
	if !r.end {
		n, err := r.Reader.Read(p)
		if err != io.EOF { // a clean end is io.EOF itself
			return n, err
		}
		r.end = true
		if n > 0 {
			return n, nil
		}
	}
	if !*r.over {
		return 0, errNoEnd
	}
	return 0, io.EOF
}

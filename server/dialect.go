package server

import (
	"errors"
	"io"

	"github.com/tidwall/gjson"

	"carryover/sse"
	"carryover/upstream/body"
)

// dialect reads decode's answers of Messages and Responses; answer.go itself reads those of the completion endpoints. Events of a dialect
// have names, which their type repeats, and no [DONE] ends the stream.
type dialect interface {
	// judge decides on one event of a stream before it is forwarded.
	judge(a *answer, ev sse.Event) sse.Verdict
	// whole reads a whole answer, and returns it as an engine without additions would have sent it.
	whole(a *answer, body []byte) []byte
}

// dialectOf returns the dialect of an API, nil for the completion endpoints.
func dialectOf(api body.API) dialect {
	switch api {
	case body.Messages:
		return messagesDialect{}
	case body.Responses:
		return responsesDialect{}
	}
	return nil
}

// typeOf returns an event's type.
func typeOf(ev sse.Event) string { return gjson.GetBytes(ev.Data, "type").String() }

// open decides on an event that comes before the KV is loaded. The event is held back until the next one, so that the turn can still be
// tried again if the load fails.
func (a *answer) open(id string) sse.Verdict {
	if id != "" && id != string(a.id) {
		a.belongs(id)
	}
	switch {
	case a.foreign && !a.passed:
		return sse.Stop
	case a.passed:
		return sse.Forward
	}
	return sse.Hold
}

// goOn notes the first event behind those that open the answer. It shows that decode has the KV.
func (a *answer) goOn() sse.Verdict {
	if !a.first {
		a.first = true
		a.decoding.begun()
	}
	return sse.Forward
}

// breaks decides on an error event of the engine. It is the stream's last event.
func (a *answer) breaks(failure gjson.Result) sse.Verdict {
	a.fails(failure)
	if !a.passed && a.mayRestart() {
		return sse.Stop
	}
	a.over = true
	return sse.Forward
}

// finishes notes that decode has ended the answer, before the client can see it.
func (a *answer) finishes() {
	a.first, a.done = true, true
	a.ends()
	a.atEnd()
}

// errNoEnd says that a stream has ended without an error but also without its last event.
var errNoEnd = errors.New("the stream ends without its last event")

// toTheEnd reads a stream, and turns its clean end into errNoEnd unless over says that the last event was seen.
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

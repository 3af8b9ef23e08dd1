package answer

import (
	"carryover/sse"
	"carryover/sse/rawjson"
	"carryover/upstream/body"
)

// dialect reads decode's answers of Messages and Responses; completion.go reads those of the completion endpoints. Events of a dialect
// have names, which their type repeats, and no [DONE] ends the stream.
type dialect interface {
	// judge decides on one event of a stream before it is forwarded.
	judge(a *Reader, ev sse.Event) sse.Verdict
	// whole reads a whole answer, and returns the changes after which it is as an engine without additions would have sent it.
	whole(a *Reader, body []byte) []valueEdit
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
func typeOf(ev sse.Event) string { return rawjson.GetText(ev.Data, "type") }

// open decides on an event that comes before the KV is loaded. The event is held back until the next one, so that the turn can still be
// tried again if the load fails.
func (a *Reader) open(id string) sse.Verdict {
	if id != "" && id != string(a.id) {
		a.belongs(id)
	}
	switch {
	case a.foreign && !a.passed:
		return sse.Stop
	case a.passed:
		return sse.Forward
	}
	return sse.Await
}

// goOn notes the first event behind those that open the answer. It shows that decode has the KV.
func (a *Reader) goOn() sse.Verdict {
	if !a.first {
		a.first = true
		a.turn.Begun()
	}
	return sse.Forward
}

// breaks decides on an error event of the engine. It is the stream's last event.
func (a *Reader) breaks(failure []byte) sse.Verdict {
	a.fails(failure)
	if !a.passed && a.turn.MayRestart() {
		return sse.Stop
	}
	return sse.Forward
}

// finishes notes that decode has ended the answer, before the client can see it.
func (a *Reader) finishes() {
	a.first, a.done = true, true
	a.ends()
	a.turn.Ended()
}

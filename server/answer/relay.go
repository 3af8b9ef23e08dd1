package answer

import (
	"bytes"

	"carryover/sse"
	"carryover/sse/rawjson"
	"carryover/upstream"
	"carryover/upstream/body"
)

// Blank returns the members that are null in what passes unread, kv_transfer_params first.
func (a *Reader) Blank() []string {
	if a.leg.Asks.Hidden {
		return blank
	}
	return blank[:1]
}

//nolint:gochecknoglobals // immutable table
var blank = []string{ParamsMember, "prompt_token_ids", "token_ids", "input_messages", "output_messages"}

// An event of more than a maximum and so many bytes for each of the leg is not read. Events repeat the request: the last one of Responses has
// all of it, and with the ids that were asked for the ids and the text of the prompt. A token of a byte has an id of eight with its comma.
const (
	maxResponseEvent = 8 << 20
	perByte          = 8
)

// substance are the members of which an event of the completion endpoints must have one to be sent.
//
//nolint:gochecknoglobals // immutable table
var substance = []string{"choices", "usage", "error"}

// Relay returns how the stream of the answer is relayed: the reader observes each event, and kv_transfer_params are cut out. Where the
// connector rewrites events, no event may pass unread.
func (a *Reader) Relay() sse.Config {
	cfg := sse.Config{
		Strip: ParamsMember, Substance: substance, MaxEvent: sse.DefaultMaxEvent, Bounded: a.leg.Rewrite != nil,
		Begin: a.Begin, Observe: a.Observe, Unread: a.Unread, Blank: a.Blank(), Complete: func() bool { return a.over },
	}
	if a.leg.API == body.Responses {
		cfg.MaxEvent = maxResponseEvent
	}
	cfg.MaxEvent += perByte * a.leg.Size
	if a.dialect != nil { // every event of a dialect matters
		cfg.Substance = nil
	}
	return cfg
}

// Unread notes that an event passes which is too long to be read, and whether it is the last: the engine names it first.
func (a *Reader) Unread(head []byte) {
	a.ineligible = Unparsable
	a.ends() // it may show that decode has finished
	if a.dialect != nil {
		name, _, _ := bytes.Cut(bytes.TrimPrefix(head, []byte("event: ")), []byte("\n"))
		switch string(name) {
		case "message_stop", "response.completed", "response.incomplete":
			a.first, a.done, a.over = true, true, true
		case "error", "response.failed":
			a.fails(nil)
			a.over = true
		default:
			a.goOn()
		}
	}
	a.passes()
}

// UnreadWhole notes that a whole answer passes unread, of which this is the beginning.
func (a *Reader) UnreadWhole(head []byte) {
	a.first, a.done, a.ineligible = true, true, Unparsable
	a.ends()
	for m, value := range rawjson.Members(head) {
		if m.Named("id") {
			a.belongs(upstream.AnswerID(value))
		}
	}
}

// passes notes that an event is about to be forwarded to the client.
func (a *Reader) passes() {
	if !a.passed {
		a.passed = true
		a.turn.Passed()
	}
}

// Over reports whether the client has got all of the answer when everything that was seen has been forwarded.
func (a *Reader) Over() bool { return a.done && a.over }

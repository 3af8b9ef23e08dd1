// Package answer reads decode's answers: of the completion endpoints (completion.go, chunk.go), of Messages and of Responses (dialect.go).
//
// A [Reader] sees each event of a stream, or a whole answer, before the client does. It decides what the client sees, and finds the facts for
// a ticket and the turn's record (result.go). Events of plain text are read in one pass, without an allocation; the general way would find
// the same in them. A small interface ([Turn]) gets a handful of calls for each answer, and none for each event.
//
// The client gets a stock engine's answer. Carryover hides what it has asked of decode beyond the client's request (ids, usage), and
// kv_transfer_params never reach a client unless the operator exposes them. It forwards no part of another request's answer where that shows
// in time. How much of an answer was seen decides whether it may leave a ticket ([Completeness]).
//
// # The APIs
//
// A turn doesn't know which of the four APIs it has. Four places do:
//
//   - requests (package body): what needs a store of responses, what is plain text, the body of each leg;
//   - ids: only a render endpoint tells the ids of a prompt of Messages or Responses, because a translated prompt has other ids (measured
//     on vLLM 0.32). Prefill's leg is a text completion of exactly these ids;
//   - answers: one reader for each API;
//   - errors: the shape that the API's clients expect.
//
// The events that open an answer of Messages or Responses come before its KV is loaded, so they wait for the next event. A stream has broken
// off if it ends without its API's last event, however clean the connection's end was. So has one of chat or text that ends before each
// choice has its finish_reason, unless its [DONE] or an error of the engine has come. The ticket is stored before message_delta or
// response.completed leaves. Hidden members are null again in every event, and no event is dropped, because events are numbered. A ticket
// doesn't know the API that left it: ids prove.
package answer

import (
	"bytes"
	"errors"
	"net/http"
	"strings"
	"time"

	"carryover/server/proof"
	"carryover/sse"
	"carryover/sse/rawjson"
	"carryover/upstream"
	"carryover/upstream/body"
	"carryover/upstream/fleet/facts"
)

// ParamsMember is the member of an answer that has decode's params.
const ParamsMember = "kv_transfer_params"

// Leg is a decode leg whose answer is read. Its Reader clears Asks.Usage if the engine sends its usage to every client.
type Leg struct {
	API       body.API
	RequestID string           // the leg's X-Request-Id, which the id of its answer repeats
	AnswerIDs *facts.AnswerIDs // whether answers of this engine carry the ids of their requests
	Size      int              // bytes of the leg's body
	Arrived   time.Time        // no byte behind the headers had arrived at this moment
	Asks      Asks
	Cached    CachedTokens      // prefill's count for the usage
	Rewrite   upstream.Rewriter // changes what the client gets; may be nil
	IDs       *proof.IDs        // takes the answer's token ids, nil if they are not compared
	Choices   int               // of a chat or text completion, that the client asked for; 0 is 1
}

// Asks is what decode was asked for in addition to the client's request.
type Asks struct {
	IDs    bool // token ids, because no plug-in adds them
	Hidden bool // the client did not ask for the ids and must not see them
	Usage  bool // the usage of a stream

	UsageDue bool // the answer must have a usage: the client or we have asked for it, or all answers of the API have one
	Stops    bool // the client has given stop strings
}

// NewLeg returns the leg of a request, with what to ask of decode. ids says that the request's ids are compared, plugIn that decode adds the ids of
// answers unasked. In Messages no request can ask, and only the plug-in adds ids. The plug-in does not know Responses.
func NewLeg(req *body.Request, ids bool, plugIn facts.Finding) Leg {
	usage, asks := req.WantsUsage(), ids && (req.API == body.Responses || req.API != body.Messages && plugIn != facts.Yes)
	return Leg{API: req.API, Choices: req.Choices(), Asks: Asks{
		IDs: asks, Hidden: asks && !req.WantsTokenIDs(),
		Usage: ids && req.Stream && !usage, UsageDue: ids || usage || !req.Stream, Stops: req.Member("stop") != nil,
	}}
}

// Turn is the turn of the answer, as the Reader uses it. It gets no call for each event.
type Turn interface {
	// FreshAsOf returns a moment at which nothing of the last read's bytes had arrived.
	FreshAsOf() time.Time
	Begun()
	// Passed says that decode works on the answer, and that its first event is about to be forwarded to the client.
	Passed()
	// MayRestart reports whether the turn can be tried again if decode fails at once.
	MayRestart() bool
}

// Reader reads one answer. Only one goroutine may use it.
type Reader struct {
	leg  *Leg
	turn Turn
	ending
	progress
	heldFinish []byte // the choices of the held-back finish

	ineligible string          // why the answer leaves no ticket, "" for nothing
	finished   map[string]bool // the indexes of choices that have their finish, if there are several
	id         []byte          // of the last event that was found to belong to the leg
	params     []byte          // the last kv_transfer_params that are not null
	began      time.Time       // a moment before a whole answer, or an event that is split, began to arrive; zero for other events
	freshAsOf  time.Time       // a moment before the first event arrived that shows decode's end
}

type progress struct {
	Seen    bool   // an event shows that decode works on the answer; one that opens an answer of Messages or Responses does not
	waits   bool   // an event waits for the next one, or has waited
	passed  bool   // an event that shows that decode works on the answer has been forwarded
	Done    bool   // decode has ended the answer: [DONE], the event that a dialect has for it, or a whole answer
	over    bool   // nothing that matters is missing: each choice has its finish, or the last event of an API, or an error, has been seen
	Failed  bool   // the engine reported an error
	Fault   int    // the status in that error
	Why     string // the beginning of the message in that error
	Foreign bool   // the answer belongs to another request

	totalled   bool  // a usage of the prompt and all of the answer has been seen
	Unwritable error // why what the connector has made of the answer can't be sent, nil if it can
}

// Reset prepares the reader for a leg whose answer has not begun.
func (a *Reader) Reset(leg *Leg, turn Turn) {
	a.leg, a.turn, a.usage, a.began = leg, turn, Usage{-1, -1, -1}, leg.Arrived
}

// Relay returns how the stream of the answer is relayed: the reader observes each event, and kv_transfer_params are cut out. If the connector
// rewrites events, no event may pass unread.
func (a *Reader) Relay() sse.Config {
	cfg := sse.Config{
		Strip: ParamsMember, Substance: substance, MaxEvent: sse.DefaultMaxEvent, Bounded: a.leg.Rewrite != nil,
		Begin: a.Begin, Observe: a.Observe, Unread: a.Unread, Blank: a.Blank(), Complete: func() bool { return a.over },
	}
	if a.leg.API == body.Responses {
		cfg.MaxEvent = maxResponseEvent
	}
	cfg.MaxEvent += perByte * a.leg.Size
	if a.named() { // every event of theirs matters
		cfg.Substance = nil
	}
	return cfg
}

// Blank returns the members that are null in what passes unread, kv_transfer_params first.
func (a *Reader) Blank() []string {
	if a.leg.Asks.Hidden {
		return blank
	}
	return blank[:1]
}

//nolint:gochecknoglobals // immutable table
var blank = []string{ParamsMember, "prompt_token_ids", "token_ids", "input_messages", "output_messages"}

// Longer events than a maximum plus a number of bytes for each byte of the leg are not read. Events repeat the request: the last one of
// Responses has all of it, and with the ids that were asked for the ids and the text of the prompt. A token of a byte has an id of eight with
// its comma.
const (
	maxResponseEvent = 8 << 20
	perByte          = 8
)

// substance are the members of the completion endpoints' events; an event without any of them is not sent.
//
//nolint:gochecknoglobals // immutable table
var substance = []string{"choices", "usage", "error"}

// Begin notes the time at which the first byte of a split event arrives. The last byte may come much later, when decode has long finished.
func (a *Reader) Begin() { a.began = a.turn.FreshAsOf() }

// ends notes that the event shows that decode has finished. Decode's TTL runs from the first such event, so later ones change nothing.
func (a *Reader) ends() {
	switch {
	case !a.freshAsOf.IsZero():
	case a.began.IsZero(): // the event is not split: the last read brought all of it
		a.freshAsOf = a.turn.FreshAsOf()
	default:
		a.freshAsOf = a.began
	}
}

var errUnwritable = errors.New("the connector has made an event of several lines")

// Observe looks at one event before it is forwarded.
func (a *Reader) Observe(ev sse.Event) sse.Verdict {
	if !ev.Split {
		a.began = time.Time{}
	}
	verdict := a.judge(ev)
	if r := a.leg.Rewrite; r != nil && verdict != sse.Drop && verdict != sse.Stop && string(ev.Data) != "[DONE]" {
		switch out := r.Event(ev.Shown()); {
		case out == nil:
			verdict = sse.Drop
		case !ev.Supplant(out):
			a.Unwritable = errUnwritable
			return sse.Stop
		case !a.Failed && rawjson.Begins(out, `{"error":`): // the connector can't read the event
			a.fails(rawjson.Get(out, "error"))
		}
	}
	switch {
	case verdict == sse.Await:
		a.waits = true
	case verdict == sse.Forward || verdict == sse.Supersede || verdict != sse.Stop && a.waits:
		a.passes()
	}
	return verdict
}

func (a *Reader) belongs(id string) {
	if rest, own := strings.CutSuffix(id, a.leg.RequestID); own && (strings.HasSuffix(rest, "-") || id == body.ResponseID(a.leg.RequestID)) {
		a.id = append(a.id[:0], id...)
	} else {
		a.ineligible = "response_id"
	}
	if a.leg.AnswerIDs.Foreign(a.leg.RequestID, id) {
		a.Foreign = true
	}
}

// takes notes why the answer leaves no ticket; "" changes nothing.
func (a *Reader) takes(why string) {
	if why != "" {
		a.ineligible = why
	}
}

// maxWhy bounds an engine's error message in bytes.
const maxWhy = 256

func (a *Reader) fails(failure []byte) {
	why := rawjson.GetText(failure, "message")
	a.Failed, a.over, a.Fault, a.Why = true, true, http.StatusInternalServerError, why[:min(len(why), maxWhy)]
	tell(&a.Fault, failure, "code")
}

// Unread notes that an event passes which is too long to be read, and whether it is the last: the engine names it first.
func (a *Reader) Unread(head []byte) {
	a.ineligible = Unparsable
	a.ends() // it may show that decode has finished
	if a.named() {
		name, _, _ := bytes.Cut(bytes.TrimPrefix(head, []byte("event: ")), []byte("\n"))
		switch string(name) {
		case "message_stop", "response.completed", "response.incomplete":
			a.Seen, a.Done, a.over = true, true, true
		case "error", "response.failed":
			a.fails(nil)
			a.over = true
		default:
			a.goOn()
		}
	}
	a.passes()
}

// UnreadWhole notes that a whole answer with this beginning passes unread.
func (a *Reader) UnreadWhole(head []byte) {
	a.finishes()
	a.ineligible = Unparsable
	for m, value := range rawjson.Members(head) {
		if m.Named("id") {
			a.belongs(upstream.AnswerID(value))
		}
	}
}

func (a *Reader) passes() {
	if !a.passed {
		a.passed = true
		a.turn.Passed()
	}
}

// Over reports whether the client has all of the answer once all seen events are forwarded.
func (a *Reader) Over() bool { return a.Done && a.over }

package answer

import (
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

// Leg is a decode leg whose answer is read. Its Reader changes what was asked for where the engine gives it to every client.
type Leg struct {
	API       body.API
	RequestID string           // the leg's X-Request-Id, which the id of its answer repeats
	AnswerIDs *facts.AnswerIDs // whether answers of this engine carry the ids of their requests
	Size      int              // bytes of the leg's body
	Arrived   time.Time        // no byte behind the headers had arrived at this moment
	Asks      Asks
	Cached    CachedTokens      // what the usage tells of prefill's caches
	Rewrite   upstream.Rewriter // changes what the client gets, nil if nothing is to be changed
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

// ResponseID returns the id of the response to a leg, in the form that clients know.
func ResponseID(leg string) string { return "resp_" + leg }

// Turn is what the answer's turn is told, and asked, while the answer is read. No call comes for each event.
type Turn interface {
	// FreshAsOf returns a moment at which nothing had arrived yet of what the last read returned.
	FreshAsOf() time.Time
	// Begun says that decode has begun the answer.
	Begun()
	// Passed says that decode works on the answer, and that its first event is about to be forwarded to the client.
	Passed()
	// Ended says that decode's end of the answer has been read, before the client can see it. It may be called more than once.
	Ended()
	// MayRestart reports whether the turn can be tried again if decode fails at once.
	MayRestart() bool
}

// Reader reads one answer. Only one goroutine may use it.
type Reader struct {
	leg     *Leg
	turn    Turn
	dialect dialect // reads the events of Messages and Responses, nil for the completion endpoints
	ending
	progress
	usageFilter usageFilter

	ineligible string          // why the answer leaves no ticket, "" for nothing
	finished   map[string]bool // the indexes of choices that have their finish, if there are several
	id         []byte          // the id of the last event that was found to belong to the leg
	params     []byte          // the last kv_transfer_params that are not null
	began      time.Time       // a moment before a whole answer, or an event that is split, began to arrive; zero for other events
	freshAsOf  time.Time       // a moment before the first event arrived that shows decode's end
}

// progress is how far an answer has come.
type progress struct {
	first   bool   // an event has been seen
	waits   bool   // an event waits for the next one, or has waited
	passed  bool   // an event has been forwarded to the client that shows that decode works on the answer
	done    bool   // decode has ended the answer: [DONE], the event that a dialect has for it, or a whole answer
	over    bool   // nothing that matters is missing: each choice has its finish, or the last event of an API, or an error, has been seen
	failed  bool   // the engine reported an error
	fault   int    // the status in that error
	why     string // the message in that error
	foreign bool   // the answer belongs to another request

	totalled   bool // a usage that counts the prompt and all of the answer has been seen
	unwritable bool // the connector has rewritten an event into something that can't be sent
}

// Seen reports whether an event has been seen that shows that decode works on the answer. An event that opens an answer of Messages or
// Responses does not: it comes before the KV is loaded.
func (p *progress) Seen() bool { return p.first }

// Foreign reports whether the answer belongs to another request.
func (p *progress) Foreign() bool { return p.foreign }

// Fault returns the status and the beginning of the message of the error that the engine has reported, 0 if it has reported none.
func (p *progress) Fault() (status int, message string) { return p.fault, p.why }

// Unwritable reports whether the connector has rewritten an event into something that can't be sent.
func (p *progress) Unwritable() bool { return p.unwritable }

// Reset prepares the reader for the answer of a leg, of which no event has come.
func (a *Reader) Reset(leg *Leg, turn Turn) {
	a.leg, a.turn, a.usage, a.began = leg, turn, Usage{-1, -1, -1}, leg.Arrived
	a.dialect = dialectOf(leg.API)
}

// Begin notes the time at which the first byte of a split event arrives. The last byte may come much later, when decode has long finished.
func (a *Reader) Begin() { a.began = a.turn.FreshAsOf() }

// ends notes that the event shows that decode has finished. Decode's TTL runs from the first such event, so that later ones change nothing.
func (a *Reader) ends() {
	switch {
	case !a.freshAsOf.IsZero():
	case a.began.IsZero(): // the event is not split: the last read brought all of it
		a.freshAsOf = a.turn.FreshAsOf()
	default:
		a.freshAsOf = a.began
	}
}

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
			a.unwritable = true
			return sse.Stop
		case !a.failed && rawjson.Begins(out, `{"error":`): // the connector can't read the event
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

// belongs checks that an event with this id belongs to the leg's answer.
func (a *Reader) belongs(id string) {
	if rest, own := strings.CutSuffix(id, a.leg.RequestID); own && (strings.HasSuffix(rest, "-") || id == ResponseID(a.leg.RequestID)) {
		a.id = append(a.id[:0], id...)
	} else {
		a.ineligible = "response_id"
	}
	if a.leg.AnswerIDs.Foreign(a.leg.RequestID, id) {
		a.foreign = true
	}
}

// takes notes the reason why the answer leaves no ticket, unless it is "".
func (a *Reader) takes(why string) {
	if why != "" {
		a.ineligible = why
	}
}

// maxWhy is how many bytes of an engine's error message are kept.
const maxWhy = 256

// fails notes the error that the engine reports, and its status.
func (a *Reader) fails(failure []byte) {
	why := rawjson.GetText(failure, "message")
	a.failed, a.over, a.fault, a.why = true, true, http.StatusInternalServerError, why[:min(len(why), maxWhy)]
	tell(&a.fault, failure, "code")
}

package server

import (
	"bytes"
	"net/http"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"carryover/convcache"
	"carryover/server/proof"
	"carryover/sse"
	"carryover/sse/rawjson"
)

// unparsable is why an answer that is not JSON leaves no ticket.
const unparsable = "unparsable"

// answer is what the observer learns of decode's answer while it is relayed.
type answer struct {
	turn     *turn
	decoding *decoding
	dialect  dialect      // of an API that is none of the completion endpoints
	reply    *proof.Reply // what is said, nil where the proof does not need it
	ending
	progress
	usageFilter usageFilter
	traits      replyTraits

	// atEnd is called when the end of the stream is seen, before the client can
	// see it. mayRestart tells whether an immediate failure can still be retried.
	atEnd      func()
	mayRestart func() bool

	ineligible string    // why the answer leaves no ticket, "" for nothing
	id         []byte    // of the last event that was seen to belong to the leg
	params     []byte    // the last non-null kv_transfer_params
	began      time.Time // nothing of an answer that comes whole had arrived then, or of an event that is split; zero for other events
	freshAsOf  time.Time // nothing had arrived then of the first event that shows decode's end
}

// progress is how far an answer has come.
type progress struct {
	first     bool   // an event has been seen
	passed    bool   // an event has been forwarded; nothing can be taken back any more
	done      bool   // decode has said its end: [DONE], or what stands for it, or the answer came whole
	over      bool   // of a dialect, the last event has been seen
	left      bool   // the client has left, or we end the turn, before decode said its end
	concluded bool   // its ticket is dealt with
	failed    bool   // the engine reported an error
	fault     int    // with this status
	why       string // and these words
	foreign   bool   // it is the answer to another request

	totalled   bool // a usage that counts the prompt and all of the answer has been seen
	unwritable bool // the connector makes something of an event that is none
}

// ending is how decode says that the answer ended.
type ending struct {
	finish     string // finish_reason
	stopReason bool   // a stop string or stop token ended it
	usage      usage
}

func newAnswer(t *turn, d *decoding) *answer {
	a := &answer{}
	a.of(t, d)
	return a
}

// of begins an answer, which is empty yet.
func (a *answer) of(t *turn, d *decoding) {
	a.turn, a.decoding, a.usage, a.began = t, d, usage{-1, -1, -1}, d.arrived
	a.dialect = dialectOf(t.api)
	if t.proof != nil {
		a.reply = t.proof.Reply()
		a.reply.Begin()
	}
	if d.link != nil {
		t.ids.Retain(t.arena)
	}
	t.ids.Grow(d.blockSize)
}

// record is what is known of the answer when it has ended.
func (a *answer) record(relayed sse.Stats) AnswerRecord {
	return AnswerRecord{
		Events: relayed.Events, Bytes: relayed.Bytes, Fault: a.fault, Finish: a.finish, PromptTokens: a.usage.prompt, CompletionTokens: a.usage.completion,
		CachedTokens: a.usage.cached,
	}
}

// begin notes the age of an event that is split with its first byte. Its last may come
// much later, when decode has long finished.
func (a *answer) begin() { a.began = a.decoding.FreshAsOf() }

// ends notes that the event shows decode to have finished. Its TTL runs since, so no
// later event changes the age.
func (a *answer) ends() {
	switch {
	case !a.freshAsOf.IsZero():
	case a.began.IsZero(): // nothing has been read since its first byte came
		a.freshAsOf = a.decoding.FreshAsOf()
	default:
		a.freshAsOf = a.began
	}
}

// observe looks at one event before it is forwarded.
func (a *answer) observe(ev sse.Event) sse.Verdict {
	if !ev.Split {
		a.began = time.Time{}
	}
	verdict := a.judge(ev)
	if t := a.turn; t.committed && t.req != nil { // by what came before decode's answer
		t.dropBody()
	}
	if r := a.decoding.rewrite; r != nil && verdict != sse.Drop && verdict != sse.Stop && string(ev.Data) != "[DONE]" {
		switch out := r.Event(ev.Shown()); {
		case out == nil:
			verdict = sse.Drop
		case !ev.Supplant(out):
			a.unwritable = true
			return sse.Stop
		}
	}
	if verdict == sse.Forward || verdict == sse.Supersede {
		a.passed = true
	}
	return verdict
}

// judge parses no more than it must: every event if the reply is needed or ids are
// told, else only the first and those that may matter.
func (a *answer) judge(ev sse.Event) sse.Verdict {
	if a.dialect != nil {
		return a.dialect.judge(a, ev)
	}
	first := !a.first
	a.first = true
	if a.concluded { // behind the end there is nothing of the answer
		return sse.Forward
	}
	if ev.Member != nil {
		a.params = bytes.Clone(ev.Member)
		a.ends()
	}
	if string(ev.Data) == "[DONE]" {
		a.done = true
		a.atEnd()
		return sse.Forward
	}
	if rawjson.Begins(ev.Data, `{"error":`) {
		a.fails(gjson.GetBytes(ev.Data, "error"))
		if !a.passed && a.mayRestart() {
			return sse.Stop
		}
		return sse.Forward
	}
	if first {
		a.decoding.begun()
	}
	a.traits.look(ev.Data)
	if !first {
		if verdict, ok := a.plain(ev); ok {
			return verdict
		}
	}
	return a.weigh(ev, first)
}

// weigh is the rest of judge, for an event of any shape.
func (a *answer) weigh(ev sse.Event, first bool) sse.Verdict {
	if a.decoding.asks.ids {
		a.takeIDs(ev)
	}
	if a.reply == nil && !first && !a.tells(ev.Data) {
		return sse.Forward
	}
	found, ok := readMembers(ev.Data)
	if !ok {
		a.ineligible = unparsable
		return sse.Forward
	}
	choice := a.read(&found)
	if first && choice.Exists() && a.usage.prompt >= 0 {
		a.decoding.asks.usage = false // the engine tells its usage to every client (--enable-force-include-usage)
	}
	switch {
	case a.foreign && !a.passed:
		return sse.Stop
	case first && roleOnly(choice):
		return sse.Hold
	case a.decoding.asks.hidden && onlyForIDs(choice):
		return sse.Drop
	case a.decoding.asks.usage && !choice.Exists() && found.hasUsage(): // the event with the usage, which has no choice
		return a.usageFilter.resume(ev)
	case a.decoding.asks.usage && a.usageFilter.hold(ev.Data, found.choices, choice, a.decoding.asks.hidden):
		return sse.Hold
	}
	return sse.Forward
}

// belongs checks that an event with this id is one of the leg's answer.
func (a *answer) belongs(id string) {
	if rest, own := strings.CutSuffix(id, a.decoding.requestID); own && (strings.HasSuffix(rest, "-") || id == answerID(a.decoding.requestID)) {
		a.id = append(a.id[:0], id...)
	} else {
		a.ineligible = "response_id"
	}
	if a.decoding.start.Foreign(a.decoding.requestID, id) {
		a.foreign = true
	}
}

// tells reports whether an event can matter to the token proof besides its ids:
// it ends the choice, follows the end, has a usage, or exists only because ids
// were asked for.
func (a *answer) tells(data []byte) bool {
	return a.turn.ids.Wanted() && (a.finish != "" || rawjson.MayHave(data, "finish_reason", `"`) || rawjson.MayHave(data, "usage", "{") ||
		a.decoding.asks.hidden && rawjson.MayHave(data, "delta", "{}"))
}

// onlyForIDs recognises an event that vLLM sends only because ids were asked for,
// when a tool or reasoning parser keeps the text back (chat_completion/serving.py).
func onlyForIDs(choice gjson.Result) bool {
	delta := choice.Get("delta")
	return delta.IsObject() && len(delta.Map()) == 0 && choice.Get("finish_reason").Type == gjson.Null && choice.Get("logprobs").Type == gjson.Null
}

// takeIDs collects the ids of an event, and puts back what a stock engine would
// have sent unless the client asked for them itself.
func (a *answer) takeIDs(ev sse.Event) {
	found, ok := sse.FindTokenIDs(ev.Data)
	if !ok {
		return
	}
	a.takes(a.turn.ids.Add(found.Prompt, found.Output))
	if a.decoding.asks.hidden {
		found.Null(ev)
	}
}

// takes notes why the answer leaves no ticket, if there is something.
func (a *answer) takes(why string) {
	if why != "" {
		a.ineligible = why
	}
}

// roleOnly recognises vLLM's first chat chunk, which it sends even when loading
// the KV cache has failed; the next event is the error then.
func roleOnly(choice gjson.Result) bool {
	delta := choice.Get("delta")
	return delta.Get("role").Exists() && delta.Get("content").String() == "" && choice.Get("finish_reason").Type == gjson.Null
}

// read takes in the members of one chunk, or of a whole answer, and returns the choice.
func (a *answer) read(found *answerMembers) gjson.Result {
	both := found.hasUsage() && a.usage.read(gjson.ParseBytes(found.usage))
	if found.failed() {
		a.fails(gjson.ParseBytes(found.failure))
	}
	if found.id != nil && !found.has(a.id) { // else it was seen to belong to the leg
		a.belongs(gjson.ParseBytes(found.id).String())
	}
	choice, more := found.choice()
	if !choice.Exists() {
		a.totalled = a.totalled || both
		return choice
	}
	if more || choice.Get("index").Int() != 0 {
		a.ineligible = "choices"
	}
	a.closes(choice)
	a.totalled = a.totalled || both && a.finish != "" // before the finish it counts what has come so far
	if a.done {
		if why := a.reply.Whole(choice, a.finish); a.ineligible == "" || why != convcache.WhyToolArguments {
			a.takes(why)
		}
	} else {
		a.takes(a.reply.Add(choice, a.finish))
	}
	return choice
}

// maxWhy bounds what is kept of an engine's words for an error.
const maxWhy = 256

// fails notes that the engine reports an error, and of which status.
func (a *answer) fails(failure gjson.Result) {
	why := failure.Get("message").String()
	a.failed, a.fault, a.why = true, http.StatusInternalServerError, why[:min(len(why), maxWhy)]
	if code := failure.Get("code"); code.Type == gjson.Number {
		a.fault = int(code.Int())
	}
}

// closes notes how a choice ended.
func (a *answer) closes(choice gjson.Result) {
	if finish := choice.Get("finish_reason"); finish.Type == gjson.String {
		a.finish = finish.String()
		a.ends()
	}
	if reason := choice.Get("stop_reason"); reason.Exists() && reason.Type != gjson.Null {
		a.stopReason = true
	}
}

// whole takes in a non-stream answer and returns it without kv_transfer_params.
func (a *answer) whole(body []byte) []byte {
	a.first, a.done = true, true
	a.ends()
	if a.dialect != nil {
		return a.dialect.whole(a, body)
	}
	rest, params, found := rawjson.Cut(body, paramsMember)
	if found && string(params) != "null" {
		a.params = params
	}
	members, ok := readMembers(body)
	if !ok {
		a.ineligible = unparsable
		return rest
	}
	a.traits.whole(a.read(&members))
	if a.decoding.asks.ids {
		plain, prompt, output := sse.NullTokenIDs(rest)
		a.takes(a.turn.ids.Add(prompt, output))
		if a.decoding.asks.hidden {
			rest = plain
		}
	}
	return rest
}

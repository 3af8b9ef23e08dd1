package server

import (
	"bytes"
	"net/http"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"carryover/convcache"
	"carryover/server/proof"
	"carryover/server/record"
	"carryover/sse"
	"carryover/sse/rawjson"
)

// unparsable is the reason why an answer that is not JSON leaves no ticket.
const unparsable = "unparsable"

// answer is what is learnt from decode's answer while it is relayed.
type answer struct {
	turn     *turn
	decoding *decoding
	dialect  dialect      // reads the events of Messages and Responses, nil for the completion endpoints
	reply    *proof.Reply // the text of the answer, nil where the proof does not need it
	ending
	progress
	usageFilter usageFilter
	traits      replyTraits

	// atEnd is called when decode's end of the stream has been read, before the client can see it. mayRestart reports whether the turn can
	// be tried again if decode fails at once.
	atEnd      func()
	mayRestart func() bool

	ineligible string    // why the answer leaves no ticket, "" for nothing
	id         []byte    // the id of the last event that was found to belong to the leg
	params     []byte    // the last kv_transfer_params that are not null
	began      time.Time // a moment before a whole answer, or an event that is split, began to arrive; zero for other events
	freshAsOf  time.Time // a moment before the first event arrived that shows decode's end
}

// progress is how far an answer has come.
type progress struct {
	first     bool   // an event has been seen
	passed    bool   // an event has been forwarded to the client, so that no attempt can follow
	done      bool   // decode has ended the answer: [DONE], the event that a dialect has for it, or a whole answer
	over      bool   // the last event of a dialect has been seen
	left      bool   // the client has left, or the server ends the turn, before decode ended the answer
	concluded bool   // the answer's ticket has been stored or given up
	failed    bool   // the engine reported an error
	fault     int    // the status in that error
	why       string // the message in that error
	foreign   bool   // the answer belongs to another request

	totalled   bool // a usage that counts the prompt and all of the answer has been seen
	unwritable bool // the connector has rewritten an event into something that can't be sent
}

// ending is how decode ended the answer.
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

// of prepares an answer that has no event yet.
func (a *answer) of(t *turn, d *decoding) {
	a.turn, a.decoding, a.usage, a.began = t, d, usage{-1, -1, -1}, d.arrived
	a.dialect = dialectOf(t.api)
	if t.proof != nil {
		a.reply = t.proof.Reply()
		a.reply.Begin()
	}
	if d.pairState != nil {
		t.ids.Retain(t.arena)
	}
	t.ids.Grow(d.blockSize)
}

// record returns the answer's part of the turn's record. It is called when the answer has ended.
func (a *answer) record(relayed sse.Stats) record.Answer {
	return record.Answer{
		Events: relayed.Events, Bytes: relayed.Bytes, Fault: a.fault, Finish: a.finish, PromptTokens: a.usage.prompt, CompletionTokens: a.usage.completion,
		CachedTokens: a.usage.cached,
	}
}

// begin notes the time at which the first byte of a split event arrives. The last byte may come much later, when decode has long finished.
func (a *answer) begin() { a.began = a.decoding.FreshAsOf() }

// ends notes that the event shows that decode has finished. Decode's TTL runs from the first such event, so that later ones change nothing.
func (a *answer) ends() {
	switch {
	case !a.freshAsOf.IsZero():
	case a.began.IsZero(): // the event is not split: the last read brought all of it
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
	if t := a.turn; t.committed && t.req != nil { // prefill's first token was sent before decode's answer
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
		a.passed, a.decoding.unread = true, nil
	}
	return verdict
}

// judge decides on one event, and parses no more than it must: every event if the reply or the ids are needed, else only the first and
// those that may matter.
func (a *answer) judge(ev sse.Event) sse.Verdict {
	if a.dialect != nil {
		return a.dialect.judge(a, ev)
	}
	first := !a.first
	a.first = true
	if a.concluded { // events behind the end have no part of the answer
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

// weigh decides on an event that judge has found no faster way for.
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
		a.decoding.asks.usage = false // the engine sends its usage to every client (--enable-force-include-usage)
	}
	switch {
	case a.foreign && !a.passed:
		return sse.Stop
	case first && roleOnly(choice):
		return sse.Hold
	case a.decoding.asks.hidden && onlyForIDs(choice):
		return sse.Drop
	case a.decoding.asks.usage && !choice.Exists() && found.hasUsage(): // the event with the usage has no choice
		return a.usageFilter.resume(ev)
	case a.decoding.asks.usage && a.usageFilter.hold(ev.Data, found.choices, choice, a.decoding.asks.hidden):
		return sse.Hold
	}
	return sse.Forward
}

// belongs checks that an event with this id belongs to the leg's answer.
func (a *answer) belongs(id string) {
	if rest, own := strings.CutSuffix(id, a.decoding.requestID); own && (strings.HasSuffix(rest, "-") || id == answerID(a.decoding.requestID)) {
		a.id = append(a.id[:0], id...)
	} else {
		a.ineligible = "response_id"
	}
	if a.decoding.incarnation.Engine().AnswerIDs.Foreign(a.decoding.requestID, id) {
		a.foreign = true
	}
}

// tells reports whether an event can matter to the token proof for more than its ids: it ends the choice, follows the end, has a usage, or
// exists only because ids were asked for.
func (a *answer) tells(data []byte) bool {
	return a.turn.ids.Wanted() && (a.finish != "" || rawjson.MayHave(data, "finish_reason", `"`) || rawjson.MayHave(data, "usage", "{") ||
		a.decoding.asks.hidden && rawjson.MayHave(data, "delta", "{}"))
}

// onlyForIDs reports whether vLLM sent an event only because ids were asked for, while a tool or reasoning parser holds the text back
// (chat_completion/serving.py).
func onlyForIDs(choice gjson.Result) bool {
	delta := choice.Get("delta")
	return delta.IsObject() && len(delta.Map()) == 0 && choice.Get("finish_reason").Type == gjson.Null && choice.Get("logprobs").Type == gjson.Null
}

// takeIDs collects the ids of an event. Unless the client asked for ids itself, it replaces them by the nulls that an engine would have sent.
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

// takes notes the reason why the answer leaves no ticket, unless it is "".
func (a *answer) takes(why string) {
	if why != "" {
		a.ineligible = why
	}
}

// roleOnly recognises vLLM's first chat chunk. vLLM sends it even if loading the KV has failed; the next event is then the error.
func roleOnly(choice gjson.Result) bool {
	delta := choice.Get("delta")
	return delta.Get("role").Exists() && delta.Get("content").String() == "" && choice.Get("finish_reason").Type == gjson.Null
}

// read reads the members of one chunk, or of a whole answer, and returns the choice.
func (a *answer) read(found *answerMembers) gjson.Result {
	both := found.hasUsage() && a.usage.read(gjson.ParseBytes(found.usage))
	if found.failed() {
		a.fails(gjson.ParseBytes(found.failure))
	}
	if found.id != nil && !found.has(a.id) { // an id equal to the last has been checked
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
	a.totalled = a.totalled || both && a.finish != "" // a usage before the finish counts only the tokens so far
	if a.done {
		if why := a.reply.Whole(choice, a.finish); a.ineligible == "" || why != convcache.WhyToolArguments {
			a.takes(why)
		}
	} else {
		a.takes(a.reply.Add(choice, a.finish))
	}
	return choice
}

// maxWhy is how many bytes of an engine's error message are kept.
const maxWhy = 256

// fails notes the error that the engine reports, and its status.
func (a *answer) fails(failure gjson.Result) {
	why := failure.Get("message").String()
	a.failed, a.fault, a.why = true, http.StatusInternalServerError, why[:min(len(why), maxWhy)]
	if code := failure.Get("code"); code.Type == gjson.Number {
		a.fault = int(code.Int())
	}
	if !a.passed {
		a.decoding.leavesUnread()
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

// whole reads a whole answer and returns it without kv_transfer_params.
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

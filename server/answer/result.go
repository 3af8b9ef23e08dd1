package answer

import (
	"strings"
	"time"

	"carryover/server/record"
	"carryover/sse"
	"carryover/sse/rawjson"
)

// Unparsable is the reason why an answer that is not JSON leaves no ticket.
const Unparsable = "unparsable"

// Result is what an answer has shown. It may change until the answer has ended.
type Result struct {
	Finish       string // finish_reason in the words of the completion endpoints, "" if it was not seen
	StopReason   bool   // a stop string or stop token ended the answer
	Usage        Usage
	Params       []byte    // the last kv_transfer_params that are not null, a part of the answer; nil for none
	FreshAsOf    time.Time // a moment before the first event arrived that shows decode's end, zero if none did
	Ineligible   string    // why the answer leaves no ticket, "" for nothing
	Completeness Completeness
	Foreign      bool // the answer belongs to another request
	Identified   bool // an id shows that the answer belongs to the leg
}

// Result returns what the answer has shown. left says that the client has left, or that the server ends the turn.
func (a *Reader) Result(left bool) Result {
	return Result{
		Finish: a.finish, StopReason: a.stopReason, Usage: a.usage, Params: a.params, FreshAsOf: a.freshAsOf, Ineligible: a.ineligible,
		Completeness: a.completeness(left), Foreign: a.Foreign, Identified: a.id != nil,
	}
}

// maxFinish bounds a finish_reason in the record. In vLLM it has at most fourteen bytes.
const maxFinish = 64

// Record returns the answer's part of the turn's record. It is called when the answer has ended.
func (a *Reader) Record(relayed sse.Stats) record.Answer {
	finish := strings.ToValidUTF8(a.finish[:min(len(a.finish), maxFinish)], "")
	return record.Answer{
		Events: relayed.Events, Bytes: relayed.Bytes,
		Finish:       strings.Clone(finish), // it is a part of the whole answer, which observers would keep in memory
		PromptTokens: a.usage.Prompt, CompletionTokens: a.usage.Completion,
		CachedTokens: a.usage.Cached,
	}
}

type ending struct {
	finish     string // finish_reason
	stopReason bool   // as in Result
	usage      Usage
}

func (e *ending) closes(choice *choiceMembers) (finished bool) {
	finish, finished := rawjson.Text(choice.finish)
	if finished {
		e.finish = finish
	}
	e.stopReason = e.stopReason || !rawjson.IsNull(choice.stop)
	return finished
}

// Usage is the token counts that decode reported, -1 for each missing one.
type Usage struct{ Prompt, Completion, Cached int }

func (u *Usage) read(counts []byte) (both bool) {
	prompt, completion := tell(&u.Prompt, counts, "prompt_tokens"), tell(&u.Completion, counts, "completion_tokens")
	tell(&u.Cached, counts, "prompt_tokens_details", "cached_tokens")
	return prompt && completion
}

// tell sets a number to the integer at a path in raw, and reports whether there is one.
func tell(n *int, raw []byte, path ...string) (ok bool) {
	told, ok := rawjson.GetInt(raw, path...)
	if ok {
		*n = told
	}
	return ok
}

// Completeness says how much of decode's answer was seen when its reading ended. It decides, for every API and every such end, whether the
// answer may leave a ticket or be handed back. If not, decode's blocks are released.
//
// An answer is complete when its end was seen and, if a usage is due, the usage too. Only the usage shows that an id was lost or came
// twice: remote_num_tokens may be one less than the number of tokens.
//
// The columns of the table are what was seen last, the rows how the reading ended.
//
//	what was seen last                  the finish, no params   finish and params   the usage too   the end
//	the end: [DONE], message_delta,
//	response.completed, a whole body    –                       –                   –               complete *
//	the client leaves                   incomplete              uncounted *         complete        complete *
//	the program ends the turn           incomplete              uncounted *         complete        complete *
//	the stream ends without its end     incomplete              incomplete          incomplete      complete *
//	it breaks, is silent, is too long   incomplete              incomplete          incomplete      complete *
//	an error event                      incomplete              incomplete          incomplete      complete *
//	the other leg fails                 incomplete              incomplete          incomplete      complete *
//
// Before the finish every answer is incomplete. Where the table says "uncounted *", an answer without a due usage is complete. Where it
// says "complete *", an answer whose due usage did not come is uncounted. A usage is due for every answer except streams of the completion
// endpoints for which neither the client nor this program asked for it (Asks.UsageDue). A stream that breaks while its client waits is
// incomplete even if everything that matters was seen: the client can't take the text for the answer, and sends the turn again.
type Completeness int

const (
	// Incomplete says that the end was not seen.
	Incomplete Completeness = iota
	// Uncounted says that the end was seen, but not the due usage.
	Uncounted
	// Complete says that the end was seen, and the usage if it is due.
	Complete
)

func (a *Reader) completeness(left bool) Completeness {
	// After the finish with the params vLLM sends nothing that matters except the usage.
	end := a.Done || left && a.finish != "" && a.params != nil
	switch {
	case a.Failed || !end:
		return Incomplete
	case a.leg.Asks.UsageDue && !a.totalled:
		return Uncounted
	}
	return Complete
}

// Lacks returns why an answer of this completeness leaves no ticket, "" if nothing is missing.
func (c Completeness) Lacks() string {
	switch c {
	case Incomplete:
		return "incomplete"
	case Uncounted:
		return "uncounted"
	}
	return ""
}

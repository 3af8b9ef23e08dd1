package answer

import (
	"time"

	"carryover/server/record"
	"carryover/sse"
	"carryover/sse/rawjson"
)

// Unparsable is the reason why an answer that is not JSON leaves no ticket.
const Unparsable = "unparsable"

// Result is what an answer has shown. All of it may still change until the answer has ended.
type Result struct {
	Finish       string // finish_reason in the words of the completion endpoints, "" if it was not seen
	StopReason   bool   // a stop string or stop token ended the answer
	Usage        Usage
	Params       []byte    // the last kv_transfer_params that are not null, nil if there were none; a part of the answer
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
		Completeness: a.completeness(left), Foreign: a.foreign, Identified: a.id != nil,
	}
}

// Record returns the answer's part of the turn's record. It is called when the answer has ended.
func (a *Reader) Record(relayed sse.Stats) record.Answer {
	return record.Answer{
		Events: relayed.Events, Bytes: relayed.Bytes, Finish: a.finish, PromptTokens: a.usage.Prompt, CompletionTokens: a.usage.Completion,
		CachedTokens: a.usage.Cached,
	}
}

// ending is how decode ended the answer.
type ending struct {
	finish     string // finish_reason
	stopReason bool   // a stop string or stop token ended it
	usage      Usage
}

// closes reads how a choice ended, and reports whether it has.
func (e *ending) closes(choice *choiceMembers) (finished bool) {
	finish, finished := rawjson.Text(choice.finish)
	if finished {
		e.finish = finish
	}
	e.stopReason = e.stopReason || !rawjson.IsNull(choice.stop)
	return finished
}

// Usage is the token counts that decode reported, -1 for each that it did not report.
type Usage struct{ Prompt, Completion, Cached int }

// read reads a usage, and reports whether it counts both prompt and answer.
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

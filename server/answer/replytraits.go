package answer

import (
	"github.com/tidwall/gjson"

	"carryover/server/outline"
	"carryover/sse/rawjson"
)

// replyTraits says whether an answer has reasoning and tool calls, as far as its beginning and end show. With them outlines can tell whether
// a client's next request repeats all of the answer.
type replyTraits struct {
	reasoning bool // reasoning came first
	looked    int  // events that were looked at
}

// mostLooked bounds the events that are looked at. Where ids are asked for, vLLM sends an empty event for each token that a parser
// keeps back, such as those of a tag; in all recordings the first event with text is the second or third.
const mostLooked = 16

// look looks for reasoning at the beginning of a stream of chat. It comes before all content, so that the first event with either tells, and
// nothing behind it is looked at. It costs some 50 ns for each of these events.
func (s *replyTraits) look(data []byte) {
	if s.looked >= mostLooked {
		return
	}
	s.looked++
	s.reasoning = says(data, "reasoning") || says(data, "reasoning_content")
	if s.reasoning || says(data, "content") || rawjson.MayHave(data, "tool_calls", "[{") || rawjson.MayHave(data, "finish_reason", `"`) {
		s.looked = mostLooked
	}
}

// says reports whether a member may be a string that is not empty.
func says(data []byte, name string) bool {
	return rawjson.MayHave(data, `"`+name, `"`) && !rawjson.MayHave(data, `"`+name, `""`)
}

// whole reads the traits of a whole answer from its choice.
func (s *replyTraits) whole(choice gjson.Result) {
	message := choice.Get("message")
	s.reasoning = message.Get("reasoning").String() != "" || message.Get("reasoning_content").String() != ""
}

// reply returns what is kept of the answer together with its request's outline.
func (s *replyTraits) reply(finish string) outline.Reply {
	return outline.Reply{Calls: finish == "tool_calls", Reasoning: s.reasoning}
}

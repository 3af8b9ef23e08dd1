package convcache

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"carryover/convcache/pyjson"
)

// Why a reply cannot be proven by its history. The set is closed; each becomes the reason
// ineligible_<why>.
const (
	// WhyFinish: generation did not end by itself, at its limit or with tool calls.
	WhyFinish = "finish"
	// WhyStopString: a stop string or stop token id ended it. The blocks hold tokens that the text
	// lacks.
	WhyStopString = "stop_string"
	// WhyReasoning: thinking precedes the answer in the blocks. Templates drop it from history
	// (vllm#43094).
	WhyReasoning = "reasoning"
	// WhyTooLarge: the reply exceeds 8 MiB.
	WhyTooLarge = "too_large"
	// WhyEmpty: neither text nor tool calls.
	WhyEmpty = "empty"
	// WhyToolArguments: the template would print the arguments of a tool call differently from how decode generated
	// them.
	WhyToolArguments = "tool_arguments"
	// WhyUnicode: U+FFFD or invalid UTF-8, the sign of a character that generation left incomplete. When it is echoed
	// it is tokenised differently.
	WhyUnicode = "unicode"
	// WhyWhitespace: the content of a chat reply begins or ends with white space. Templates trim it
	// (Llama 3, Gemma and Mistral print content | trim).
	WhyWhitespace = "whitespace"
)

// maxReply bounds a reply whose history can be used.
const maxReply = 8 << 20

// ReplyFacts is what is known of a reply besides its text.
type ReplyFacts struct {
	// FinishReason is the finish_reason of the choice.
	FinishReason string
	// StopReason says that the choice had a stop_reason that is not null.
	StopReason bool
	// Reasoning says that reasoning was seen: a delta or message with reasoning or reasoning_content.
	Reasoning bool
}

// Eligible reports whether the history rules hold for a reply: whether a client that echoes it unchanged makes the
// engine render the tokens that decode holds. If not, why is the first reason that applies, in the order of the
// constants. It judges the reply only; ChatHistory and the caller judge the request.
func Eligible(reply Reply, facts ReplyFacts) (why string, ok bool) {
	switch {
	case facts.FinishReason != "stop" && facts.FinishReason != "length" && facts.FinishReason != "tool_calls":
		return WhyFinish, false
	case facts.StopReason:
		return WhyStopString, false
	case facts.Reasoning || holdsThinking(reply.Content):
		return WhyReasoning, false
	case reply.size() > maxReply:
		return WhyTooLarge, false
	case reply.Content == "" && reply.Text == "" && len(reply.ToolCalls) == 0:
		return WhyEmpty, false
	case !canonicalCalls(reply.ToolCalls):
		return WhyToolArguments, false
	case !reply.wholeCharacters():
		return WhyUnicode, false
	case strings.TrimFunc(reply.Content, trimmed) != reply.Content:
		return WhyWhitespace, false
	}
	return "", true
}

// holdsThinking finds thinking within the content, which happens where the engine runs without a reasoning parser.
// Templates cut it out of history (Qwen3's and DeepSeek R1's split at "</think>", Magistral marks it "[THINK]").
func holdsThinking(content string) bool {
	return strings.Contains(content, "think>") || strings.Contains(content, "THINK]")
}

// canonicalCalls says whether all arguments survive the way through the template.
func canonicalCalls(calls []ToolCall) bool {
	for _, call := range calls {
		if !pyjson.Canonical(call.Arguments) {
			return false
		}
	}
	return true
}

// trimmed reports whether Python's str.strip or Rust's str::trim removes the rune. Python counts the four separators
// from U+001C on as white space, Unicode does not.
func trimmed(r rune) bool { return unicode.IsSpace(r) || '\x1c' <= r && r <= '\x1f' }

// size is the length of all text in the reply.
func (r Reply) size() int {
	n := len(r.Content) + len(r.Text)
	for _, call := range r.ToolCalls {
		n += len(call.ID) + len(call.Type) + len(call.Name) + len(call.Arguments)
	}
	return n
}

// wholeCharacters says whether the text is valid UTF-8 without U+FFFD. Arguments are ASCII where
// they are canonical.
func (r Reply) wholeCharacters() bool {
	whole := func(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, utf8.RuneError) }
	for _, call := range r.ToolCalls {
		if !whole(call.ID) || !whole(call.Type) || !whole(call.Name) {
			return false
		}
	}
	return whole(r.Content) && whole(r.Text)
}

package server

import (
	"strings"

	"github.com/tidwall/gjson"

	"carryover/convcache"
	"carryover/upstream"
)

// toolCall is a tool call as it grows from deltas.
type toolCall struct {
	id, kind, name string
	arguments      strings.Builder
}

// collect appends a choice to the reply.
func (a *answer) collect(choice gjson.Result, part string) {
	text, delta := choice.Get("text").String(), gjson.Result{}
	if a.turn.api == upstream.Chat {
		delta = choice.Get(part)
		text = delta.Get("content").String()
	}
	a.content = append(a.content, text...)
	if a.finish == "length" && (text == "" || a.done) {
		// The limit may have fallen into a character of several tokens. vLLM keeps
		// their text back until the character is whole (tokenizers' DecodeStream) and
		// drops it at the end, so decode's blocks hold tokens that the reply lacks. A
		// stream whose last token brought text shows that there are none; a whole
		// answer does not tell.
		a.odd = convcache.WhyUnicode
	}
	if a.turn.api == upstream.Chat {
		for _, name := range []string{"reasoning", "reasoning_content"} {
			if delta.Get(name).String() != "" {
				a.reasoning = true
			}
		}
		if call := delta.Get("function_call"); call.Exists() && call.Type != gjson.Null {
			a.odd = "function_call"
		}
		for i, call := range delta.Get("tool_calls").Array() {
			a.collectTool(call, i)
		}
	}
	if len(a.content) > maxReply {
		a.odd, a.content = "too_large", nil
	}
}

// collectTool merges one element of tool_calls; in a stream its index says which
// call it continues.
func (a *answer) collectTool(call gjson.Result, position int) {
	if index := call.Get("index"); index.Exists() {
		position = int(index.Int())
	}
	if position < 0 || position > len(a.tools) {
		a.odd = "tool_calls"
		return
	}
	if position == len(a.tools) {
		a.tools = append(a.tools, toolCall{})
	}
	tool := &a.tools[position]
	tool.id += call.Get("id").String()
	tool.kind += call.Get("type").String()
	tool.name += call.Get("function.name").String()
	tool.arguments.WriteString(call.Get("function.arguments").String())
}

// reply is what the history digest covers beyond the request.
func (a *answer) reply() convcache.Reply {
	if a.turn.api == upstream.Text {
		return convcache.Reply{Text: string(a.content)}
	}
	reply := convcache.Reply{Content: string(a.content)}
	for i := range a.tools {
		tool := &a.tools[i]
		reply.ToolCalls = append(reply.ToolCalls, convcache.ToolCall{ID: tool.id, Type: tool.kind, Name: tool.name, Arguments: tool.arguments.String()})
	}
	return reply
}

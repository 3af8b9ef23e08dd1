package proof

import (
	"strings"

	"github.com/tidwall/gjson"

	"carryover/convcache"
	"carryover/upstream/body"
)

// maxReply is the length of the longest reply that is collected; a longer one is not kept.
const maxReply = 8 << 20

// Reply collects the content of decode's answer in the form in which a client will repeat it. It belongs to one answer. The methods of a
// nil Reply do nothing.
type Reply struct {
	api       body.API
	content   []byte
	tools     []toolCall
	reasoning bool
}

// toolCall is a tool call, assembled from deltas.
type toolCall struct {
	id, kind, name string
	arguments      strings.Builder
}

// Begin discards what an earlier attempt has collected.
func (r *Reply) Begin() {
	if r != nil {
		*r = Reply{api: r.api}
	}
}

// Add adds the delta of a choice. finish is its finish_reason, "" before the end. why says why this answer can't be part of a proof, "" if
// it can.
func (r *Reply) Add(choice gjson.Result, finish string) (why string) {
	if r == nil {
		return ""
	}
	return r.add(choice, "delta", finish, false)
}

// Whole adds the choice of an answer that was not streamed.
func (r *Reply) Whole(choice gjson.Result, finish string) (why string) {
	if r == nil {
		return ""
	}
	why = r.add(choice, "message", finish, true)
	if len(r.tools) > 0 && why == "" {
		// The arguments of a whole answer are what the tool parser printed after it had read them (vLLM hermes_tool_parser.py, json.dumps).
		// They are canonical whatever decode generated. Only a stream shows them as decode generated them.
		why = convcache.WhyToolArguments
	}
	return why
}

func (r *Reply) add(choice gjson.Result, part, finish string, whole bool) (why string) {
	text, delta := choice.Get("text").String(), gjson.Result{}
	if r.api == body.Chat {
		delta = choice.Get(part)
		text = delta.Get("content").String()
	}
	r.content = append(r.content, text...)
	if finish == "length" && (text == "" || whole) {
		// The limit may have cut a character of several tokens. vLLM holds their text back until the character is complete (tokenizers'
		// DecodeStream) and drops it at the end, so decode's blocks hold tokens that the reply lacks. If the last token of a stream brought
		// text, there are no such tokens; a whole answer does not show it.
		why = convcache.WhyUnicode
	}
	if r.api == body.Chat {
		for _, name := range []string{"reasoning", "reasoning_content"} {
			if delta.Get(name).String() != "" {
				r.reasoning = true
			}
		}
		if call := delta.Get("function_call"); call.Exists() && call.Type != gjson.Null {
			why = "function_call"
		}
		for i, call := range delta.Get("tool_calls").Array() {
			if !r.tool(call, i) {
				why = "tool_calls"
			}
		}
	}
	if len(r.content) > maxReply {
		why, r.content = convcache.WhyTooLarge, nil
	}
	return why
}

// tool merges one element of tool_calls. In a stream the element's index says which call it continues.
func (r *Reply) tool(call gjson.Result, position int) (ok bool) {
	if index := call.Get("index"); index.Exists() {
		position = int(index.Int())
	}
	if position < 0 || position > len(r.tools) {
		return false
	}
	if position == len(r.tools) {
		r.tools = append(r.tools, toolCall{})
	}
	tool := &r.tools[position]
	tool.id += call.Get("id").String()
	tool.kind += call.Get("type").String()
	tool.name += call.Get("function.name").String()
	tool.arguments.WriteString(call.Get("function.arguments").String())
	return true
}

// reply returns the part of the history digest that the answer adds to the request.
func (r *Reply) reply() convcache.Reply {
	if r.api == body.Text {
		return convcache.Reply{Text: string(r.content)}
	}
	reply := convcache.Reply{Content: string(r.content)}
	for i := range r.tools {
		tool := &r.tools[i]
		reply.ToolCalls = append(reply.ToolCalls, convcache.ToolCall{ID: tool.id, Type: tool.kind, Name: tool.name, Arguments: tool.arguments.String()})
	}
	return reply
}

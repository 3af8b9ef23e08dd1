package convcache

import (
	"encoding/binary"
	"slices"

	"carryover/sse/rawjson"
)

// The members of a message that are treated by name.
const (
	memberRole      = "role"
	memberContent   = "content"
	memberToolCalls = "tool_calls"
	memberFunction  = "function"
)

const roleAssistant = "assistant"

// Reply is what decode generated, assembled from a stream or taken from an answer.
type Reply struct {
	// Content is the content of the assistant message. Absent, null and "" are one.
	Content string
	// ToolCalls are the tool calls of the assistant message in their order.
	ToolCalls []ToolCall
	// Text is the completion of a text request, which has none of the above.
	Text string
}

// ToolCall is one tool call of an assistant message.
type ToolCall struct {
	ID string
	// Type is "function"; a stream may leave it out, which counts as the same.
	Type string
	Name string
	// Arguments is the JSON text as generated.
	Arguments string
}

// message reads one message and leaves its encoding, alone, in c.out.
//
// Client libraries echo a reply with what their classes have: null for every member the answer did
// not set, an empty tool_calls, the index of a streamed tool call. Templates do not print these
// (Jinja takes null and absent for equally false, and vLLM's ConversationMessage, entrypoints/
// chat_utils.py, has no place for most of them), so they are left out:
//
//   - members whose value is null, in the message itself;
//   - tool_calls that is an empty array;
//   - content that is "" in an assistant message with tool calls, where streams carry no content,
//     answers carry null, and libraries make either of both;
//   - index, a number, in an element of tool_calls.
//
// The blocks hold what decode generated and none of these spellings, so taking them for one assumes
// nothing that the echo of a reply does not assume anyway: that the template renders it alike.
// Every other member counts, known or not, since a template may read it. A content of parts is never
// equal to a string.
func (c *canonical) message(e rawjson.Element) (assistant bool, err error) {
	c.out = append(c.out[:0], tagObject)
	c.spans = c.spans[:0]
	for m := range e.Members() {
		s := span{start: len(c.out)}
		if err := c.decoded(m.Key); err != nil {
			return false, err
		}
		s.value = len(c.out)
		if err := c.memberValue(m, asMessage.member(c.name(s))); err != nil {
			return false, err
		}
		s.end = len(c.out)
		c.spans = append(c.spans, s)
	}
	if err := c.sort(c.spans); err != nil {
		return false, err
	}
	role := c.find(c.spans, memberRole)
	if len(role) == 0 || role[0] != tagString && role[0] != tagLong {
		return false, c.in.Fault("message without a role")
	}
	assistant = string(role[stringHead:]) == roleAssistant

	c.spans = slices.DeleteFunc(c.spans, func(s span) bool {
		value := c.out[s.value:s.end]
		return value[0] == tagNull || string(c.name(s)) == memberToolCalls && len(value) == len("[]") && value[0] == tagArray
	})
	if assistant && c.find(c.spans, memberToolCalls) != nil {
		c.spans = slices.DeleteFunc(c.spans, func(s span) bool {
			return string(c.name(s)) == memberContent && c.out[s.value] == tagString && s.end-s.value == stringHead
		})
	}
	const body = 1 // behind the tag
	c.arrange(body, c.spans)
	c.out = append(c.out, tagObjectEnd)
	return assistant, nil
}

// memberValue appends the value of a member that has been scanned.
func (c *canonical) memberValue(m rawjson.ElementMember, r reading) error {
	if m.IsText() {
		return c.long(m.Value[1 : len(m.Value)-1])
	}
	c.read(m.Value)
	return c.value(r)
}

// find returns the encoded value of the named member, nil when there is none.
func (c *canonical) find(spans []span, name string) []byte {
	for _, s := range spans {
		if string(c.name(s)) == name {
			return c.out[s.value:s.end]
		}
	}
	return nil
}

// isIndex reports whether a member of a tool call is its position in the stream.
func (c *canonical) isIndex(s span) bool {
	return string(c.name(s)) == "index" && c.out[s.value] == tagNumber
}

// appendMessage appends the encoding that message gives to a faithful echo of the reply: members sorted by name, an
// empty content left out if there are tool calls.
func (k HistoryKey) appendMessage(out []byte, r Reply) []byte {
	out = append(out, tagObject)
	if r.Content != "" || len(r.ToolCalls) == 0 {
		out = k.appendMember(out, memberContent, r.Content)
	}
	out = k.appendMember(out, memberRole, roleAssistant)
	if len(r.ToolCalls) > 0 {
		out = appendString(out, memberToolCalls)
		out = append(out, tagArray)
		for _, call := range r.ToolCalls {
			out = k.appendCall(out, call)
		}
		out = append(out, tagArrayEnd)
	}
	return append(out, tagObjectEnd)
}

// appendCall appends the encoding of a tool call.
func (k HistoryKey) appendCall(out []byte, t ToolCall) []byte {
	if t.Type == "" {
		t.Type = memberFunction
	}
	out = append(out, tagObject)
	out = appendString(out, memberFunction)
	out = append(out, tagObject)
	out = k.appendMember(out, "arguments", t.Arguments)
	out = k.appendMember(out, "name", t.Name)
	out = append(out, tagObjectEnd)
	out = k.appendMember(out, "id", t.ID)
	out = k.appendMember(out, "type", t.Type)
	return append(out, tagObjectEnd)
}

// appendMember appends a member whose value is a string.
func (k HistoryKey) appendMember(out []byte, name, value string) []byte {
	out = appendString(out, name)
	if k.tagging(len(value)) {
		return k.appendTag(out, []byte(value))
	}
	return appendString(out, value)
}

// appendText appends a string as canonical.text does.
func (k HistoryKey) appendText(out, text []byte) []byte {
	if k.tagging(len(text)) {
		return k.appendTag(out, text)
	}
	return append(binary.BigEndian.AppendUint64(append(out, tagString), uint64(len(text))), text...)
}

// appendString appends a name as canonical.decoded does.
func appendString(out []byte, s string) []byte {
	out = append(out, tagString)
	out = binary.BigEndian.AppendUint64(out, uint64(len(s)))
	return append(out, s...)
}

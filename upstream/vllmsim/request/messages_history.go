package request

import (
	"encoding/json"
	"strings"

	"carryover/upstream/vllmsim/template"
	"carryover/upstream/vllmsim/wire"
)

type historyMessage struct {
	Role    string    `json:"role"`
	Content blockList `json:"content"`
}

// textOr is a content: a text, or a list of parts.
type textOr[T any] struct {
	text *string
	list []T
}

// UnmarshalJSON reads either form.
func (l *textOr[T]) UnmarshalJSON(raw []byte) error {
	if len(raw) > 0 && raw[0] == '[' {
		return json.Unmarshal(raw, &l.list)
	}
	return json.Unmarshal(raw, &l.text)
}

type blockList = textOr[historyBlock]

// historyBlock is a block of a content, without cache_control and signatures.
type historyBlock struct {
	Type     string          `json:"type"`
	Text     string          `json:"text"`
	ID       string          `json:"id"`
	Name     string          `json:"name"`
	Input    json.RawMessage `json:"input"`
	Content  json.RawMessage `json:"content"`
	Thinking string          `json:"thinking"`
}

// attribution begins the block in which Claude Code describes itself. Its hash differs in every request, so vLLM drops the block.
const attribution = "x-anthropic-billing-header"

// systemText joins the texts of a system prompt without a separator.
func systemText(l blockList) string {
	if l.text != nil {
		return *l.text
	}
	var b strings.Builder
	for _, block := range l.list {
		if block.Type == "text" && !strings.HasPrefix(block.Text, attribution) {
			b.WriteString(block.Text)
		}
	}
	return b.String()
}

// history returns the messages for the chat template. With merge, later system messages join the system prompt at the front, as in vLLM for
// templates that need it (_detect_merge_inline_system, anthropic/serving.py). Then the turn before is not a prefix of this turn.
func (m *Messages) history(merge bool) ([]template.Message, error) {
	system := systemText(m.System)
	if merge {
		for _, in := range m.Messages {
			if in.Role == "system" {
				system += systemText(in.Content)
			}
		}
	}
	var h chatHistory
	if system != "" {
		h.add(template.Message{Role: "system", Content: wire.RawJSON(system)})
	}
	for _, in := range m.Messages {
		switch text := in.Content.text; {
		case in.Role == "system":
			if inline := systemText(in.Content); inline != "" && !merge {
				h.add(template.Message{Role: "system", Content: wire.RawJSON(inline)})
			}
		case text != nil:
			h.add(template.Message{Role: in.Role, Content: wire.RawJSON(*text)})
		default:
			if err := h.convert(in); err != nil {
				return nil, err
			}
		}
	}
	return h.messages, nil
}

type chatHistory struct {
	messages []template.Message
}

func (h *chatHistory) add(m template.Message) { h.messages = append(h.messages, m) }

type chatPart struct {
	Type     string        `json:"type"`
	Text     *string       `json:"text,omitempty"`
	ImageURL *chatImageURL `json:"image_url,omitempty"`
}

type chatImageURL struct {
	URL string `json:"url"`
}

// convert adds a message of blocks. Results of tools become messages of their own, before the user's text beside them.
func (h *chatHistory) convert(in historyMessage) error {
	out := template.Message{Role: in.Role}
	var texts []chatPart
	for _, block := range in.Content.list {
		switch {
		case block.Type == "text" && block.Text != "":
			texts = append(texts, chatPart{Type: "text", Text: &block.Text})
		case block.Type == "thinking":
			out.Reasoning += template.Thought(block.Thinking)
		case block.Type == "tool_use":
			call, err := block.call()
			if err != nil {
				return err
			}
			out.ToolCalls = append(out.ToolCalls, call)
		case block.Type == "tool_result" && out.Role == "user":
			if err := h.result(block); err != nil {
				return err
			}
		}
	}
	switch {
	case len(texts) == 1:
		out.Content = wire.RawJSON(*texts[0].Text)
	case len(texts) > 0:
		out.Content = wire.RawJSON(texts)
	case out.Role == "user":
		return nil // only results
	}
	h.add(out)
	return nil
}

// call returns a tool call whose arguments are json.dumps of the input.
func (b *historyBlock) call() (template.ToolCall, error) {
	var call template.ToolCall
	call.Function.Name, call.Function.Arguments = b.Name, "{}"
	if isNull(b.Input) {
		return call, nil
	}
	arguments, err := template.PythonJSON(b.Input)
	if err != nil {
		return call, wire.BadRequest("", "%s", err)
	}
	call.Function.Arguments = arguments
	return call, nil
}

// result adds a tool's answer.
func (h *chatHistory) result(b historyBlock) error {
	var content blockList
	if len(b.Content) > 0 {
		if err := json.Unmarshal(b.Content, &content); err != nil {
			return bodyError(err)
		}
	}
	var texts []string
	if content.text != nil {
		texts = []string{*content.text}
	}
	for _, part := range content.list {
		texts = append(texts, part.Text)
	}
	h.add(template.Message{Role: "tool", Content: wire.RawJSON(strings.Join(texts, "\n"))})
	return nil
}

package request

import (
	"cmp"
	"encoding/json"
	"strings"

	"carryover/upstream/vllmsim/template"
	"carryover/upstream/vllmsim/wire"
)

// historyMessage is a message of a request of the Messages API.
type historyMessage struct {
	Role    string    `json:"role"`
	Content blockList `json:"content"`
}

// role is the role as vLLM takes it: Claude Code has two more names for that of the user (normalize_role, anthropic/protocol.py).
func (m *historyMessage) role() string {
	if m.Role == "ctx" || m.Role == "msg" {
		return "user"
	}
	return m.Role
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

// blockList is a content of the Messages API.
type blockList = textOr[historyBlock]

// historyBlock is a block of a content. cache_control and signatures are ignored.
type historyBlock struct {
	Type     string          `json:"type"`
	Text     string          `json:"text"`
	Source   blockSource     `json:"source"`
	ID       string          `json:"id"`
	Name     string          `json:"name"`
	Input    json.RawMessage `json:"input"`
	Content  json.RawMessage `json:"content"`
	Thinking string          `json:"thinking"`
}

type blockSource struct {
	Type      string `json:"type"`
	URL       string `json:"url"`
	MediaType string `json:"media_type"`
	Data      string `json:"data"`
}

// attribution begins the block in which Claude Code tells of itself. It has a new hash in every request, so vLLM drops it.
const attribution = "x-anthropic-billing-header"

// systemText joins the texts of a system prompt, with nothing between them.
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

// history is what the chat template gets to see. With merge, system messages among the others join the system prompt in front of all, as
// vLLM does for templates that want it there (_detect_merge_inline_system, anthropic/serving.py): what was rendered on the turn before
// is no beginning of this turn then.
func (m *Messages) history(merge bool) ([]template.Message, error) {
	system := systemText(m.System)
	if merge {
		for _, in := range m.Messages {
			if in.role() == "system" {
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
		case in.role() == "system":
			if inline := systemText(in.Content); inline != "" && !merge {
				h.add(template.Message{Role: "system", Content: wire.RawJSON(inline)})
			}
		case text != nil:
			h.add(template.Message{Role: in.role(), Content: wire.RawJSON(*text)})
		default:
			if err := h.convert(in); err != nil {
				return nil, err
			}
		}
	}
	return h.messages, nil
}

// chatHistory collects the messages of chat.
type chatHistory struct {
	messages []template.Message
}

func (h *chatHistory) add(m template.Message) { h.messages = append(h.messages, m) }

// chatPart is a part of a content of chat.
type chatPart struct {
	Type     string        `json:"type"`
	Text     *string       `json:"text,omitempty"`
	ImageURL *chatImageURL `json:"image_url,omitempty"`
}

type chatImageURL struct {
	URL string `json:"url"`
}

// convert adds a message of blocks. The results of tools are messages of their own, in front of what the user says beside them.
func (h *chatHistory) convert(in historyMessage) error {
	out := template.Message{Role: in.role()}
	var parts []chatPart
	for _, block := range in.Content.list {
		switch {
		case block.Type == "text" && block.Text != "":
			parts = append(parts, chatPart{Type: "text", Text: &block.Text})
		case block.Type == "image":
			parts = append(parts, block.Source.part())
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
	case len(parts) == 1 && parts[0].Text != nil:
		out.Content = wire.RawJSON(*parts[0].Text)
	case len(parts) > 0:
		out.Content = wire.RawJSON(parts)
	case out.Role == "user":
		return nil // results and nothing else
	}
	h.add(out)
	return nil
}

// call is a tool call whose arguments are json.dumps of the input.
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

// result adds what a tool has answered; its images are a message of the user's behind it, since a tool's has none.
func (h *chatHistory) result(b historyBlock) error {
	var content blockList
	if len(b.Content) > 0 {
		if err := json.Unmarshal(b.Content, &content); err != nil {
			return bodyError(err)
		}
	}
	text := ""
	var images []chatPart
	if content.text != nil {
		text = *content.text
	}
	var texts []string
	for _, part := range content.list {
		switch part.Type {
		case "text":
			texts = append(texts, part.Text)
		case "image":
			images = append(images, part.Source.part())
		}
	}
	h.add(template.Message{Role: "tool", Content: wire.RawJSON(text + strings.Join(texts, "\n"))})
	if len(images) > 0 {
		h.add(template.Message{Role: "user", Content: wire.RawJSON(images)})
	}
	return nil
}

// part is an image as chat has it.
func (s *blockSource) part() chatPart {
	url := s.URL
	if s.Type != "url" {
		url = "data:" + cmp.Or(s.MediaType, "image/jpeg") + ";base64," + s.Data
	}
	return chatPart{Type: "image_url", ImageURL: &chatImageURL{URL: url}}
}

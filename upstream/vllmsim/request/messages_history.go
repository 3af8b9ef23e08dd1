package request

import (
	"cmp"
	"encoding/json"
	"strings"

	"carryover/upstream/vllmsim/template"
	"carryover/upstream/vllmsim/wire"
)

type historyMessage struct {
	Role    string    `json:"role"`
	Content blockList `json:"content"`
}

// role returns vLLM's role: Claude Code has two more names for the user (normalize_role, anthropic/protocol.py).
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

type blockList = textOr[historyBlock]

// historyBlock is a block of a content, without cache_control and signatures.
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

// result adds a tool's answer. Its images become a user message behind it, because a tool's message has none.
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

func (s *blockSource) part() chatPart {
	url := s.URL
	if s.Type != "url" {
		url = "data:" + cmp.Or(s.MediaType, "image/jpeg") + ";base64," + s.Data
	}
	return chatPart{Type: "image_url", ImageURL: &chatImageURL{URL: url}}
}

package request

import (
	"encoding/json"
	"fmt"
	"slices"

	"carryover/upstream/vllmsim/template"
	"carryover/upstream/vllmsim/wire"
)

type partList = textOr[inputPart]

// inputItem is an item of an input: a message, a call, a tool's result, or a thought.
type inputItem struct {
	Type      string   `json:"type"`
	Role      string   `json:"role"`
	Status    string   `json:"status"`
	Content   partList `json:"content"`
	Name      string   `json:"name"`
	Arguments string   `json:"arguments"`
	Output    partList `json:"output"`
}

// kind returns the type, which messages may omit.
func (m *inputItem) kind() string {
	if m.Type == "" && m.Role != "" {
		return "message"
	}
	return m.Type
}

type inputPart struct {
	Type     string `json:"type"`
	Text     string `json:"text"`
	Refusal  string `json:"refusal"`
	ImageURL string `json:"image_url"`
}

// validateInput refuses items for which vLLM has no chat message. Refusals of item_reference and encrypted_content were measured. The error
// texts, and the refusal of other unknown items, follow body validation.
func (r *Responses) validateInput() error {
	for n, item := range r.input.list {
		at := fmt.Sprintf("input.%d", n)
		if kind := item.kind(); !slices.Contains([]string{"message", "function_call", "function_call_output", "reasoning"}, kind) {
			return invalidMember("value_error", at+".type", "Value error, items of this type are not supported", "'"+kind+"'")
		}
	}
	return nil
}

// goesOn reports whether the last item is an unfinished answer that the engine has to continue (should_continue_final_message,
// responses/utils.py).
func (r *Responses) goesOn() bool {
	items := r.input.list
	if len(items) == 0 {
		return false
	}
	last := &items[len(items)-1]
	return (last.kind() == "message" || last.kind() == "reasoning") && (last.Status == "in_progress" || last.Status == "incomplete")
}

// history returns the messages for the chat template (construct_input_messages, responses/utils.py). The order of a call's keys differs
// between this API and chat. A real template may render it; the simulator's templates write the keys themselves.
func (r *Responses) history() []template.Message {
	var h chatHistory
	if r.Instructions != nil && *r.Instructions != "" {
		h.add(template.Message{Role: "system", Content: wire.RawJSON(*r.Instructions)})
	}
	if r.input.text != nil {
		h.add(template.Message{Role: "user", Content: wire.RawJSON(*r.input.text)})
	}
	for _, item := range r.input.list {
		h.item(item)
	}
	return h.messages
}

// item adds an item. An assistant's item joins the previous message if that message has no item of this kind.
func (h *chatHistory) item(item inputItem) {
	switch {
	case item.kind() == "function_call":
		var call template.ToolCall
		call.Function.Name, call.Function.Arguments = item.Name, item.Arguments
		m := h.assistant(func(*template.Message) bool { return true })
		m.ToolCalls = append(m.ToolCalls, call)
	case item.kind() == "function_call_output":
		h.add(template.Message{Role: "tool", Content: chatContent(item.Output)})
	case item.kind() == "reasoning":
		h.assistant(func(m *template.Message) bool { return m.Reasoning == "" }).Reasoning = template.Thought(firstText(item.Content))
	case item.Role == "assistant":
		h.assistant(func(m *template.Message) bool { return m.Content == nil }).Content = wire.RawJSON(firstText(item.Content))
	default:
		h.add(template.Message{Role: item.Role, Content: chatContent(item.Content)})
	}
}

// assistant returns the last message if it is an assistant's and room accepts it, otherwise a new one.
func (h *chatHistory) assistant(room func(*template.Message) bool) *template.Message {
	n := len(h.messages)
	if n == 0 || h.messages[n-1].Role != "assistant" || !room(&h.messages[n-1]) {
		h.add(template.Message{Role: "assistant"})
	}
	return &h.messages[len(h.messages)-1]
}

// firstText returns the text of the first part, the only one that vLLM reads of an assistant's message.
func firstText(l partList) string {
	switch {
	case l.text != nil:
		return *l.text
	case len(l.list) > 0:
		return l.list[0].Text
	default:
		return ""
	}
}

func chatContent(l partList) json.RawMessage {
	if l.text != nil {
		return wire.RawJSON(*l.text)
	}
	parts := []chatPart{}
	for _, part := range l.list {
		if part.Type == "input_image" {
			parts = append(parts, chatPart{Type: "image_url", ImageURL: &chatImageURL{URL: part.ImageURL}})
			continue
		}
		text := part.Text + part.Refusal
		parts = append(parts, chatPart{Type: "text", Text: &text})
	}
	return wire.RawJSON(parts)
}

package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"carryover/upstream/vllmsim/wire"
)

// The Anthropic Messages API as vLLM 0.32 and 0.33 have it (vllm/entrypoints/anthropic). A request becomes a chat request
// (request/messages.go), and the answer is translated back, in one piece (here) or in events (messages_stream.go). Errors have vLLM's
// statuses, but most messages of body validation are not vLLM's. Thinking changes only reasoning_effort.

// messageAnswer is a whole answer. vLLM omits null members (model_dump(exclude_none=True), anthropic/api_router.py).
type messageAnswer struct {
	ID               string          `json:"id"`
	Type             string          `json:"type"`
	Role             string          `json:"role"`
	Content          []contentBlock  `json:"content"`
	Model            string          `json:"model"`
	StopReason       string          `json:"stop_reason"`
	StopSequence     *string         `json:"stop_sequence,omitempty"`
	Usage            messageUsage    `json:"usage"`
	KVTransferParams json.RawMessage `json:"kv_transfer_params,omitempty"`
}

// contentBlock is a block of an answer: text, thinking or tool_use.
type contentBlock struct {
	Type      string          `json:"type"`
	Text      *string         `json:"text,omitempty"`
	ID        string          `json:"id,omitempty"`
	Name      string          `json:"name,omitempty"`
	Input     json.RawMessage `json:"input,omitempty"`
	Thinking  *string         `json:"thinking,omitempty"`
	Signature string          `json:"signature,omitempty"`
}

// messageUsage splits the length of the prompt in three parts. Without --enable-prompt-tokens-details there is only the first.
type messageUsage struct {
	InputTokens   int  `json:"input_tokens"`
	OutputTokens  int  `json:"output_tokens"`
	CacheCreation *int `json:"cache_creation_input_tokens,omitempty"`
	CacheRead     *int `json:"cache_read_input_tokens,omitempty"`
}

type messageTurn struct{ *completion }

// respond answers in one piece. A failure is a 500 in the shape of wire.ErrorAnswer.
func (t *messageTurn) respond(ctx context.Context, w http.ResponseWriter) error {
	if err := t.finish(ctx); err != nil {
		return err
	}
	ch, params := t.choices[0], t.params()
	if string(params) == "null" {
		params = nil // omitted, like every null
	}
	a := messageAnswer{
		ID: t.id, Type: "message", Role: "assistant", Content: ch.blocks(), Model: t.endpoints.config().Answered(t.request.Model),
		Usage: t.messageUsage(), KVTransferParams: params,
	}
	a.StopReason, a.StopSequence = t.messageStop(ch)
	return wire.WriteJSON(w, http.StatusOK, a)
}

// blocks returns the content of a whole answer. It has at least one block, even an empty one, because strict clients look at the first.
func (ch *choice) blocks() []contentBlock {
	var blocks []contentBlock
	if thought := ch.out.reasoning.String(); thought != "" {
		blocks = append(blocks, contentBlock{Type: "thinking", Thinking: &thought, Signature: wire.RandomHex(16)})
	}
	text := ch.out.wholeText()
	if text != "" || len(blocks)+len(ch.out.calls) == 0 {
		blocks = append(blocks, contentBlock{Type: "text", Text: &text})
	}
	for _, call := range ch.out.calls {
		blocks = append(blocks, contentBlock{Type: "tool_use", ID: call.ID, Name: call.Function.Name, Input: json.RawMessage(call.Function.Arguments)})
	}
	return blocks
}

// messageStop returns this API's name for how the answer ended, and the stop sequence that ended it, if any. Since 0.33 a complete call takes
// precedence over a stop sequence (_to_anthropic_stop_reason, read).
func (t *messageTurn) messageStop(ch *choice) (reason string, sequence *string) {
	if stop, ok := ch.stopReason.(string); ok {
		return "stop_sequence", &stop
	}
	switch ch.finish {
	case "length":
		return "max_tokens", nil
	case "tool_calls":
		return "tool_use", nil
	default:
		return "end_turn", nil
	}
}

func (t *messageTurn) messageUsage() messageUsage {
	u := t.usage()
	m := messageUsage{InputTokens: u.PromptTokens, OutputTokens: u.CompletionTokens}
	if d := u.PromptDetails; d != nil {
		m.CacheRead, m.CacheCreation = &d.CachedTokens, d.CreatedCacheTokens
		m.InputTokens = max(0, u.PromptTokens-*m.CacheRead-*m.CacheCreation)
	}
	return m
}

// serveCount answers with the length of the rendered request. It needs no max_tokens and knows no kv_transfer_params
// (AnthropicCountTokensRequest, anthropic/protocol.py).
func (s *Endpoints) serveCount(w http.ResponseWriter, req *http.Request) error {
	c, _, err := s.read(req)
	if err == nil {
		err = s.checkModel(c.request.Model)
	}
	if err != nil {
		return err
	}
	p, err := s.renderPrompt(c.request.Conversation(true))
	if err != nil {
		return err
	}
	return wire.WriteJSON(w, http.StatusOK, json.RawMessage(fmt.Sprintf(`{"input_tokens":%[1]d,"context_management":{"original_input_tokens":%[1]d}}`, len(p.ids))))
}

package vllmsim

import (
	"context"
	"encoding/json"
	"net/http"

	"carryover/upstream/vllmsim/fault"
)

// The Anthropic Messages API as vLLM 0.32 and 0.33 have it (vllm/entrypoints/anthropic): a request is translated to one of chat
// (messages_request.go, messages_history.go), takes chat's way through the engine, and what comes out is translated back, in one
// piece (here) or in events (messages_stream.go).

const (
	pathMessages       = "/v1/messages"
	pathMessagesCount  = pathMessages + "/count_tokens"
	pathMessagesRender = pathMessages + "/render"
)

// messageAnswer is a whole answer. vLLM leaves members out that are null (model_dump(exclude_none=True), anthropic/api_router.py).
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

// contentBlock is one block of an answer: text, thinking or tool_use.
type contentBlock struct {
	Type      string          `json:"type"`
	Text      *string         `json:"text,omitempty"`
	ID        string          `json:"id,omitempty"`
	Name      string          `json:"name,omitempty"`
	Input     json.RawMessage `json:"input,omitempty"`
	Thinking  *string         `json:"thinking,omitempty"`
	Signature string          `json:"signature,omitempty"`
}

// messageUsage splits the prompt in three, which add up to its length. Without --enable-prompt-tokens-details there is only the first.
type messageUsage struct {
	InputTokens   int  `json:"input_tokens"`
	OutputTokens  int  `json:"output_tokens"`
	CacheCreation *int `json:"cache_creation_input_tokens,omitempty"`
	CacheRead     *int `json:"cache_read_input_tokens,omitempty"`
}

func (i *Instance) serveMessages(w http.ResponseWriter, req *http.Request, f *fault.Active) error {
	m, err := readMessages(req)
	if err != nil {
		return err
	}
	r, err := m.chatRequest(i.config().MergeSystem)
	if err != nil {
		return err
	}
	c := &completion{instance: i, request: r, chat: true, fault: f, id: "chatcmpl-" + requestID(req, r)}
	return c.serve(w, req, c.respondMessage, c.streamMessage)
}

// respondMessage answers at the end. What fails is a 500, in the shape of errorBody.
func (c *completion) respondMessage(ctx context.Context, w http.ResponseWriter) error {
	ch := c.choices[0]
	for ch.finish == "" {
		if _, err := c.advance(ctx, ch); err != nil {
			return failure(err)
		}
	}
	params, err := faultParams(c.fault, c.engine, c.answeredParams())
	if err != nil {
		return err
	}
	if string(params) == "null" {
		params = nil // left out, as every null
	}
	a := messageAnswer{
		ID: c.id, Type: "message", Role: "assistant", Content: ch.blocks(), Model: c.instance.config().Answered(c.request.Model),
		Usage: c.messageUsage(), KVTransferParams: params,
	}
	a.StopReason, a.StopSequence = c.messageStop(ch)
	return writeJSON(w, http.StatusOK, a)
}

// blocks are the content of a whole answer. There is always one, be its text empty, since strict clients look at the first.
func (ch *choice) blocks() []contentBlock {
	var blocks []contentBlock
	if thought := ch.out.reasoning.String(); thought != "" {
		blocks = append(blocks, contentBlock{Type: "thinking", Thinking: &thought, Signature: randomHex(16)})
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

// messageStop is this API's name for how the answer ended, and the stop sequence that ended it, if one did. Since 0.33 a complete call comes
// before a stop sequence (_to_anthropic_stop_reason, read).
func (c *completion) messageStop(ch *choice) (reason string, sequence *string) {
	if stop, ok := ch.stopReason.(string); ok {
		if len(ch.out.calls) > 0 && c.instance.config().Since033() {
			return "tool_use", nil
		}
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

func (c *completion) messageUsage() messageUsage {
	u := c.usage()
	m := messageUsage{InputTokens: u.PromptTokens, OutputTokens: u.CompletionTokens}
	if d := u.PromptDetails; d != nil {
		m.CacheRead, m.CacheCreation = &d.CachedTokens, d.CreatedCacheTokens
		m.InputTokens = max(0, u.PromptTokens-*m.CacheRead-*m.CacheCreation)
	}
	return m
}

// countAnswer is the answer of /v1/messages/count_tokens.
type countAnswer struct {
	InputTokens       int          `json:"input_tokens"`
	ContextManagement countContext `json:"context_management"`
}

type countContext struct {
	Original int `json:"original_input_tokens"`
}

// serveCount renders a request and says how long it is. It needs no max_tokens and knows no kv_transfer_params
// (AnthropicCountTokensRequest, anthropic/protocol.py).
func (i *Instance) serveCount(w http.ResponseWriter, req *http.Request) error {
	m, err := readMessages(req)
	if err != nil {
		return err
	}
	m.KVTransferParams = nil
	r, err := m.chatRequest(i.config().MergeSystem)
	if err != nil {
		return err
	}
	if err := i.checkModel(r.Model); err != nil {
		return err
	}
	p, err := i.renderPrompt(r.conversation(true))
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, countAnswer{InputTokens: len(p.ids), ContextManagement: countContext{Original: len(p.ids)}})
}

// messageError is an error of this API, as a body and as an event.
type messageError struct {
	Type  string             `json:"type"`
	Error messageErrorDetail `json:"error"`
}

type messageErrorDetail struct {
	Type    string `json:"type"`
	Message string `json:"message"`
}

// errorBody is the body of an error answered at path. On /v1/messages there are two shapes: FastAPI's checks of the body come before
// the API's own code and answer as everywhere (testdata/exchanges/vllm-0.32-agents 13). The render endpoint is not that code's, either.
func (i *Instance) errorBody(e *apiError, path string) any {
	if (path != pathMessages && path != pathMessagesCount) || e.kind == kindInvalidBody {
		return e.body()
	}
	kind := e.kind
	if i.config().Since033() {
		kind = messageErrorType(e.status)
	}
	return messageError{Type: "error", Error: messageErrorDetail{Type: kind, Message: e.message}}
}

// messageErrorType is Anthropic's name for a status, which 0.33 answers in place of vLLM's own (translate_error_type,
// anthropic/protocol.py; 400 and 404 are measured).
func messageErrorType(status int) string {
	switch status {
	case http.StatusUnauthorized:
		return "authentication_error"
	case http.StatusForbidden:
		return "permission_error"
	case http.StatusNotFound:
		return "not_found_error"
	case http.StatusRequestEntityTooLarge:
		return "request_too_large"
	case http.StatusTooManyRequests:
		return "rate_limit_error"
	case http.StatusServiceUnavailable:
		return "overloaded_error"
	}
	if status >= http.StatusInternalServerError {
		return "api_error"
	}
	return "invalid_request_error"
}

package request

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"carryover/upstream/vllmsim/wire"
)

// Messages is the body of a Messages request. As in vLLM, it ignores every other member: n, stop, min_tokens and return_token_ids have no
// effect. The simulator ignores tool_choice too.
type Messages struct {
	Model            string                     `json:"model"`
	Messages         []historyMessage           `json:"messages"`
	MaxTokens        *int                       `json:"max_tokens"`
	System           blockList                  `json:"system"`
	Stream           bool                       `json:"stream"`
	StopSequences    []string                   `json:"stop_sequences"`
	Temperature      *float64                   `json:"temperature"`
	Tools            []messagesTool             `json:"tools"`
	OutputConfig     messagesOutput             `json:"output_config"`
	TemplateKwargs   map[string]json.RawMessage `json:"chat_template_kwargs"`
	CacheSalt        string                     `json:"cache_salt"`
	KVTransferParams json.RawMessage            `json:"kv_transfer_params"`

	members map[string]json.RawMessage
}

type messagesTool struct {
	Name        string          `json:"name"`
	Description *string         `json:"description"`
	InputSchema json.RawMessage `json:"input_schema"`
}

type messagesOutput struct {
	Effort json.RawMessage `json:"effort"`
}

// ReadMessages parses the body of a request to any of this API's paths and checks what vLLM's request models check.
func ReadMessages(req *http.Request) (*Messages, error) {
	raw, err := wire.ReadJSON(req)
	if err != nil {
		return nil, err
	}
	m := &Messages{}
	if err := json.Unmarshal(raw, &m.members); err != nil {
		return nil, bodyError(err)
	}
	if err := json.Unmarshal(raw, m); err != nil {
		return nil, bodyError(err)
	}
	required := []string{"model", "messages", "max_tokens"}
	if req.URL.Path == wire.PathMessagesCount {
		required = required[:2]
	}
	for _, key := range required {
		if isNull(m.members[key]) {
			return nil, invalidMember("missing", key, "Field required", fmt.Sprintf("<dict of %d items>", len(m.members)))
		}
	}
	return m, nil
}

func invalidMember(kind, at, message, input string) error {
	return wire.InvalidBody("body."+at, fmt.Sprintf("{'type': '%s', 'loc': 'body.%s', 'msg': '%s', 'input': '%s'}", kind, at, strings.ReplaceAll(message, "'", `\'`), input))
}

// bodyError returns the error for a body that is not JSON or has a member of a wrong type.
func bodyError(err error) error {
	if kind, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		at := strings.TrimSuffix("body."+kind.Field, ".")
		return wire.InvalidBody(at, fmt.Sprintf("{'type': 'type_error', 'loc': '%s', 'msg': 'Input has a wrong type', 'input': '<%s>'}", at, kind.Value))
	}
	at := "body"
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		at = fmt.Sprintf("body.%d", syntax.Offset) // where Python misses something
	}
	return wire.InvalidBody(at, fmt.Sprintf("{'type': 'json_invalid', 'loc': '%s', 'msg': 'JSON decode error', 'input': '<dict of 0 items>', 'ctx': {'error': 'Expecting value'}}", at))
}

// ChatRequest translates the request to chat (to_chat_completion_request, anthropic/serving.py).
func (m *Messages) ChatRequest(mergeSystem bool) (*Completion, error) {
	history, err := m.history(mergeSystem)
	if err != nil {
		return nil, err
	}
	r := &Completion{
		Model: m.Model, Messages: &history, MaxCompletionTokens: m.MaxTokens, Temperature: m.Temperature, Stream: m.Stream,
		Stops: nonEmpty(m.StopSequences), TemplateKwargs: m.TemplateKwargs, ReasoningEffort: m.OutputConfig.Effort,
		CacheSalt: m.CacheSalt, KVTransferParams: m.KVTransferParams, Alternatives: -1,
	}
	for _, tool := range m.Tools {
		r.Tools = append(r.Tools, wire.RawJSON(chatTool{Type: "function", Function: chatFunction{tool.Name, tool.Description, tool.InputSchema}}))
	}
	r.Params, err = readParams(m.KVTransferParams)
	return r, err
}

type chatTool struct {
	Type     string       `json:"type"`
	Function chatFunction `json:"function"`
}

type chatFunction struct {
	Name        string          `json:"name"`
	Description *string         `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parameters"`
}

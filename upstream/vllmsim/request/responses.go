package request

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"

	"carryover/upstream/vllmsim/wire"
)

// Responses is the body of a Responses request. As in vLLM, it ignores every other member: n, min_tokens, return_token_ids, conversation and
// the client's keys have no effect.
type Responses struct {
	Model              string                     `json:"model"`
	Input              json.RawMessage            `json:"input"`
	Instructions       *string                    `json:"instructions"`
	MaxOutputTokens    *int                       `json:"max_output_tokens"`
	MaxToolCalls       *int                       `json:"max_tool_calls"`
	Tools              []Tool                     `json:"tools"`
	ToolChoice         json.RawMessage            `json:"tool_choice"`
	ParallelToolCalls  *bool                      `json:"parallel_tool_calls"`
	Stream             bool                       `json:"stream"`
	Background         bool                       `json:"background"`
	PreviousResponseID *string                    `json:"previous_response_id"`
	Reasoning          json.RawMessage            `json:"reasoning"`
	Text               json.RawMessage            `json:"text"`
	Metadata           json.RawMessage            `json:"metadata"`
	User               *string                    `json:"user"`
	ServiceTier        string                     `json:"service_tier"`
	Truncation         string                     `json:"truncation"`
	Temperature        *float64                   `json:"temperature"`
	TopP               *float64                   `json:"top_p"`
	PresencePenalty    *float64                   `json:"presence_penalty"`
	FrequencyPenalty   *float64                   `json:"frequency_penalty"`
	Stop               json.RawMessage            `json:"stop"`
	IncludeStop        bool                       `json:"include_stop_str_in_output"`
	IgnoreEOS          bool                       `json:"ignore_eos"`
	ResponseMessages   bool                       `json:"enable_response_messages"`
	TemplateKwargs     map[string]json.RawMessage `json:"chat_template_kwargs"`
	RequestID          string                     `json:"request_id"`
	CacheSalt          string                     `json:"cache_salt"`
	// Since 0.33, answers repeat these four members.
	PromptCacheOptions   json.RawMessage `json:"prompt_cache_options"`
	PromptCacheKey       json.RawMessage `json:"prompt_cache_key"`
	PromptCacheRetention json.RawMessage `json:"prompt_cache_retention"`
	SafetyIdentifier     json.RawMessage `json:"safety_identifier"`

	KVTransferParams json.RawMessage `json:"kv_transfer_params"`

	input textOr[inputItem]
}

// Tool is a tool as the answer repeats it. Of tools that are not functions, vLLM keeps only the type here.
type Tool struct {
	Name           string          `json:"name"`
	Parameters     json.RawMessage `json:"parameters"`
	Strict         *bool           `json:"strict"`
	Type           string          `json:"type"`
	AllowedCallers json.RawMessage `json:"allowed_callers"`
	Async          *bool           `json:"async"`
	DeferLoading   *bool           `json:"defer_loading"`
	Description    *string         `json:"description"`
	OutputSchema   json.RawMessage `json:"output_schema"`

	format json.RawMessage // format of a custom tool
}

// UnmarshalJSON also reads format, which answers do not repeat.
func (t *Tool) UnmarshalJSON(raw []byte) error {
	type plain Tool
	var format struct {
		Format json.RawMessage `json:"format"`
	}
	if err := json.Unmarshal(raw, (*plain)(t)); err != nil {
		return err
	}
	if err := json.Unmarshal(raw, &format); err != nil {
		return err
	}
	t.format = format.Format
	return nil
}

// ReadResponses reads a request to any of this API's paths.
func ReadResponses(req *http.Request) (*Responses, error) {
	raw, err := wire.ReadJSON(req)
	if err != nil {
		return nil, err
	}
	return parseResponses(raw)
}

// parseResponses parses a body and checks what vLLM's request model checks.
func parseResponses(raw []byte) (*Responses, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(raw, &members); err != nil {
		return nil, bodyError(err)
	}
	r := &Responses{}
	if err := json.Unmarshal(raw, r); err != nil {
		return nil, bodyError(err)
	}
	if isNull(r.Input) {
		return nil, invalidMember("missing", "input", "Field required", fmt.Sprintf("<dict of %d items>", len(members)))
	}
	if err := r.validate(); err != nil {
		return nil, err
	}
	r.setDefaults()
	return r, nil
}

func isNull(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }

// validate refuses what a real server refused with 400 (measured). The texts were not recorded. The texts about the store and about prompts
// follow vLLM's source (ResponsesRequest.validate_background, validate_prompt), the others follow body validation.
func (r *Responses) validate() error {
	for n, tool := range r.Tools {
		if tool.Type == "custom" && !isNull(tool.format) {
			return invalidMember("value_error", fmt.Sprintf("tools.%d", n), "Value error, grammars of custom tools are not supported", "<dict>")
		}
	}
	if n := r.MaxOutputTokens; n != nil && *n < 1 {
		return wire.BadRequest("max_tokens", "max_tokens must be at least 1, got %d. (parameter=max_tokens, value=%d)", *n, *n)
	}
	if json.Unmarshal(r.Input, &r.input) != nil {
		return invalidMember("string_type", "input.str", "Input should be a valid string", "<input>")
	}
	return r.validateInput()
}

func (r *Responses) setDefaults() {
	r.ServiceTier = cmp.Or(r.ServiceTier, "auto")
	r.Truncation = cmp.Or(r.Truncation, "disabled")
	if r.RequestID == "" {
		r.RequestID = "resp_" + wire.RandomHex(8)
	}
	if isNull(r.ToolChoice) {
		r.ToolChoice = wire.RawJSON("auto")
	}
	if len(r.Tools) == 0 {
		r.Tools, r.ToolChoice = []Tool{}, wire.RawJSON("none")
	}
}

// CheckStore refuses requests that need the store, which is off without VLLM_ENABLE_RESPONSES_API_STORE. The first message is from
// testdata/exchanges/vllm-0.32-agents 13, the second from vLLM's source.
func (r *Responses) CheckStore() error {
	if r.PreviousResponseID != nil {
		return &wire.Error{
			Status: http.StatusNotFound, Kind: "invalid_request_error", Param: "response_id", Message: "Response with id '" + *r.PreviousResponseID + "' not found.",
		}
	}
	if r.Background {
		return &wire.Error{Status: http.StatusBadRequest, Kind: "invalid_request_error", Param: "background", Message: "This vLLM engine does not support " +
			"`store=True` and therefore does not support the background mode. To enable these features, set the environment variable " +
			"`VLLM_ENABLE_RESPONSES_API_STORE=1` when launching the vLLM server."}
	}
	return nil
}

// ChatRequest returns the request for the chat template and the engine.
func (r *Responses) ChatRequest() (*Completion, error) {
	var effort struct {
		Effort json.RawMessage `json:"effort"`
	}
	_ = json.Unmarshal(r.Reasoning, &effort) // none without it
	history := r.history()
	onward := r.goesOn()
	generate := !onward
	c := &Completion{
		Model: r.Model, Messages: &history, MaxTokens: r.MaxOutputTokens, Temperature: r.Temperature, Stream: r.Stream, Stops: parseStops(r.Stop),
		IncludeStop: r.IncludeStop, IgnoreEOS: r.IgnoreEOS, ContinueFinal: onward, AddGenerationPrompt: &generate, ToolChoice: r.ToolChoice,
		TemplateKwargs: r.TemplateKwargs, ReasoningEffort: effort.Effort, CacheSalt: r.CacheSalt,
		KVTransferParams: r.KVTransferParams, Alternatives: -1, limitName: "max_output_tokens",
	}
	for _, tool := range r.Tools {
		if tool.Type == "function" {
			c.Tools = append(c.Tools, wire.RawJSON(chatTool{Type: "function", Function: chatFunction{tool.Name, tool.Description, tool.Parameters}}))
		}
	}
	var err error
	c.Params, err = readParams(r.KVTransferParams)
	return c, err
}

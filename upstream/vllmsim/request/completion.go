package request

import (
	"cmp"
	"encoding/json"
	"maps"
	"math/big"
	"slices"

	"carryover/upstream/vllmsim/config"
	"carryover/upstream/vllmsim/engine"
	"carryover/upstream/vllmsim/template"
	"carryover/upstream/vllmsim/wire"
)

// Completion is the body of a chat or text completion. It ignores members that the simulator does not model, as vLLM ignores unknown ones.
type Completion struct {
	Model               string                     `json:"model"`
	Messages            *[]template.Message        `json:"messages"`
	Prompt              json.RawMessage            `json:"prompt"`
	Stream              bool                       `json:"stream"`
	StreamOptions       *StreamOptions             `json:"stream_options"`
	MaxTokens           *int                       `json:"max_tokens"`
	MaxCompletionTokens *int                       `json:"max_completion_tokens"`
	MinTokens           int                        `json:"min_tokens"`
	N                   *int                       `json:"n"`
	Temperature         *float64                   `json:"temperature"`
	TopK                *big.Int                   `json:"top_k"`
	Stop                json.RawMessage            `json:"stop"`
	StopTokenIDs        []int32                    `json:"stop_token_ids"`
	IgnoreEOS           bool                       `json:"ignore_eos"`
	IncludeStop         bool                       `json:"include_stop_str_in_output"`
	ReturnTokenIDs      bool                       `json:"return_token_ids"`
	Logprobs            json.RawMessage            `json:"logprobs"`
	TopLogprobs         int                        `json:"top_logprobs"`
	Echo                bool                       `json:"echo"`
	Tools               []json.RawMessage          `json:"tools"`
	ToolChoice          json.RawMessage            `json:"tool_choice"`
	ContinueFinal       bool                       `json:"continue_final_message"`
	AddGenerationPrompt *bool                      `json:"add_generation_prompt"`
	TemplateKwargs      map[string]json.RawMessage `json:"chat_template_kwargs"`
	Documents           json.RawMessage            `json:"documents"`
	ReasoningEffort     json.RawMessage            `json:"reasoning_effort"`
	CacheSalt           string                     `json:"cache_salt"`
	BeamSearch          bool                       `json:"use_beam_search"`
	KVTransferParams    json.RawMessage            `json:"kv_transfer_params"`
	// PrefillResponse is prefill's whole answer. Some backends take the params from it (production-stack's disagg_prefill_resp).
	PrefillResponse struct {
		KVTransferParams json.RawMessage `json:"kv_transfer_params"`
	} `json:"disagg_prefill_resp"`

	Params *engine.ParamsIn `json:"-"`
	Stops  []string         `json:"-"`
	// Alternatives is how many alternatives each token lists; -1 means none.
	Alternatives int `json:"-"`
	// limitName is this API's name for the output limit; empty means max_tokens.
	limitName string
}

// StreamOptions say what a stream contains besides the answer.
type StreamOptions struct {
	IncludeUsage         bool `json:"include_usage"`
	ContinuousUsageStats bool `json:"continuous_usage_stats"`
}

// Parse reads the members of a body. Its errors follow FastAPI and pydantic.
func Parse(raw []byte) (*Completion, error) {
	r := &Completion{Alternatives: -1}
	err := json.Unmarshal(raw, r)
	if err != nil {
		return nil, bodyError(err)
	}
	if limit := textLimit; r.Messages == nil && r.MaxTokens == nil {
		r.MaxTokens = &limit
	}
	r.Stops = parseStops(r.Stop)
	r.parseLogprobs()
	if len(r.KVTransferParams) == 0 {
		r.KVTransferParams = r.PrefillResponse.KVTransferParams
	}
	r.Params, err = readParams(r.KVTransferParams)
	return r, err
}

// textLimit is the max_tokens of a text completion without max_tokens or with null (normalize_null_max_tokens, completion/protocol.py, 0.32).
const textLimit = 16

func parseStops(raw json.RawMessage) []string {
	list := make([]string, 1)
	if json.Unmarshal(raw, &list[0]) != nil {
		_ = json.Unmarshal(raw, &list) // anything else is no stop string
	}
	return nonEmpty(list)
}

func nonEmpty(list []string) []string {
	return slices.DeleteFunc(list, func(s string) bool { return s == "" })
}

// parseLogprobs reads logprobs: a boolean beside top_logprobs in chat, a number in text completions.
func (r *Completion) parseLogprobs() {
	var asked bool
	var count *int
	switch {
	case json.Unmarshal(r.Logprobs, &asked) == nil:
		if asked {
			r.Alternatives = r.TopLogprobs
		}
	case json.Unmarshal(r.Logprobs, &count) == nil:
		r.Alternatives = *count
	}
}

// Children returns n, the number of sequences.
func (r *Completion) Children() int {
	if r.N == nil {
		return 1
	}
	return *r.N
}

// Limit returns the most tokens to generate, 0 if the request sets no limit, and the name of the member that sets it.
func (r *Completion) Limit() (value int, name string) {
	switch {
	case r.MaxCompletionTokens != nil:
		return *r.MaxCompletionTokens, "max_completion_tokens"
	case r.MaxTokens != nil:
		return *r.MaxTokens, cmp.Or(r.limitName, "max_tokens")
	default:
		return 0, ""
	}
}

// Validate checks what vLLM's request models check, before the model name is looked up.
func (r *Completion) Validate(chat bool) error {
	if chat && r.Messages == nil {
		return wire.InvalidBody("body.messages", "{'type': 'missing', 'loc': 'body.messages', 'msg': 'Field required', 'input': '<dict of 1 items>'}")
	}
	if r.StreamOptions != nil && !r.Stream {
		return wire.BadRequest("stream_options", "Stream options can only be defined when `stream=True`. (parameter=stream_options)")
	}
	limit, name := r.Limit()
	switch {
	case r.TopK != nil && r.TopK.BitLen() > 64: // more than fits into the message to the engine's process
		return wire.InternalError()
	case name != "" && limit < 1:
		return wire.BadRequest(name, "max_tokens must be at least 1, got %d. (parameter=max_tokens, value=%d)", limit, limit)
	case name != "" && r.MinTokens > limit:
		return wire.BadRequest("min_tokens", "min_tokens must be less than or equal to max_tokens=%d, got %d. (parameter=min_tokens, value=%d)", limit, r.MinTokens, r.MinTokens)
	case r.Children() < 1:
		return wire.BadRequest("n", "n must be at least 1, got %d. (parameter=n, value=%d)", r.Children(), r.Children())
	}
	return nil
}

// Conversation returns the input of the chat template, for completions and for /tokenize. Only the chat endpoint moves documents and
// reasoning_effort into the template's arguments.
func (r *Completion) Conversation(chatEndpoint bool) *template.Conversation {
	c := &template.Conversation{
		Messages:      *r.Messages,
		Tools:         r.Tools,
		Kwargs:        map[string]json.RawMessage{},
		Generate:      r.AddGenerationPrompt == nil || *r.AddGenerationPrompt,
		ContinueFinal: r.ContinueFinal,
	}
	maps.Copy(c.Kwargs, r.TemplateKwargs)
	if chatEndpoint {
		if len(r.Documents) > 0 {
			c.Kwargs["documents"] = r.Documents
		}
		if len(r.ReasoningEffort) > 0 {
			c.Kwargs["reasoning_effort"] = r.ReasoningEffort
		}
	}
	return c
}

// Salt returns what identifies blocks besides their tokens, including an adapter's name (_gen_lora_extra_hash_keys in
// vllm/v1/core/kv_cache_utils.py).
func (r *Completion) Salt(c *config.Config) string {
	if adapter := r.Adapter(c); adapter != "" {
		return adapter + "\x00" + r.CacheSalt
	}
	return r.CacheSalt
}

// Adapter returns the LoRA module that a request names, "" for none.
func (r *Completion) Adapter(c *config.Config) string {
	if !slices.Contains(c.Adapters, r.Model) {
		return ""
	}
	return r.Model
}

package api

import "encoding/json"

// The bodies of answers, in the key order of vLLM 0.32 and 0.33. A member without a value is null if both versions write it. A member that
// one version omits has omitempty. testdata/exchanges checks both.

type answer struct {
	ID                string          `json:"id"`
	Object            string          `json:"object"`
	Created           int64           `json:"created"`
	Model             string          `json:"model"`
	Choices           []wholeChoice   `json:"choices"`
	ServiceTier       any             `json:"service_tier"`
	SystemFingerprint string          `json:"system_fingerprint"`
	Usage             usage           `json:"usage"`
	PromptLogprobs    json.RawMessage `json:"prompt_logprobs,omitempty"` // of chat, like the next two
	PromptTokenIDs    json.RawMessage `json:"prompt_token_ids,omitempty"`
	PromptText        json.RawMessage `json:"prompt_text,omitempty"`
	KVTransferParams  json.RawMessage `json:"kv_transfer_params"`
	ECTransferParams  any             `json:"ec_transfer_params"`
	Metrics           any             `json:"metrics"`
}

type wholeChoice struct {
	Index          int             `json:"index"`
	Message        *chatMessage    `json:"message,omitempty"` // of chat
	Text           *string         `json:"text,omitempty"`    // of a text completion
	Logprobs       json.RawMessage `json:"logprobs"`
	FinishReason   string          `json:"finish_reason"`
	StopReason     any             `json:"stop_reason"`
	TokenIDs       []int32         `json:"token_ids"`
	PromptLogprobs json.RawMessage `json:"prompt_logprobs,omitempty"` // of a text completion, like the next
	PromptTokenIDs json.RawMessage `json:"prompt_token_ids,omitempty"`
	RoutedExperts  any             `json:"routed_experts"`
	// WeightVersions is null without return_weight_versions, which no request here sets.
	WeightVersions json.RawMessage `json:"weight_versions,omitempty"`
}

type chatMessage struct {
	Role         string     `json:"role"`
	Content      *string    `json:"content"`
	Refusal      any        `json:"refusal"`
	Annotations  any        `json:"annotations"`
	Audio        any        `json:"audio"`
	FunctionCall any        `json:"function_call"`
	ToolCalls    []toolCall `json:"tool_calls,omitempty"`
	Reasoning    *string    `json:"reasoning"`
}

type chunk struct {
	ID                string          `json:"id"`
	Object            string          `json:"object"`
	Created           int64           `json:"created"`
	Model             string          `json:"model"`
	Choices           []chunkChoice   `json:"choices"`
	Usage             *usageDelta     `json:"usage,omitempty"`
	SystemFingerprint string          `json:"system_fingerprint,omitempty"`
	PromptTokenIDs    json.RawMessage `json:"prompt_token_ids,omitempty"`
	PromptText        json.RawMessage `json:"prompt_text,omitempty"`
	KVTransferParams  json.RawMessage `json:"kv_transfer_params,omitempty"`
}

// chunkChoice is a choice's part of an event. A text completion has text and the ids of its prompt, chat has a delta.
type chunkChoice struct {
	Index          int             `json:"index"`
	Delta          *delta          `json:"delta,omitempty"`
	Text           *string         `json:"text,omitempty"`
	Logprobs       json.RawMessage `json:"logprobs"`
	FinishReason   *string         `json:"finish_reason"`
	StopReason     json.RawMessage `json:"stop_reason,omitempty"`
	PromptTokenIDs json.RawMessage `json:"prompt_token_ids,omitempty"`
	TokenIDs       json.RawMessage `json:"token_ids,omitempty"`
	WeightVersions json.RawMessage `json:"weight_versions,omitempty"`
}

type delta struct {
	Role      string          `json:"role,omitempty"`
	Content   *string         `json:"content,omitempty"`
	Reasoning *string         `json:"reasoning,omitempty"`
	ToolCalls []toolCallDelta `json:"tool_calls,omitempty"`
}

type usage struct {
	PromptTokens      int            `json:"prompt_tokens"`
	TotalTokens       int            `json:"total_tokens"`
	CompletionTokens  int            `json:"completion_tokens"`
	PromptDetails     *promptDetails `json:"prompt_tokens_details"`
	CompletionDetails any            `json:"completion_tokens_details"`
}

type promptDetails struct {
	CachedTokens       int  `json:"cached_tokens"`
	CreatedCacheTokens *int `json:"created_cache_tokens"`
	MultimodalTokens   any  `json:"multimodal_tokens"`
}

// usageDelta is the usage in a stream, without null members.
type usageDelta struct {
	PromptTokens     int                 `json:"prompt_tokens"`
	TotalTokens      int                 `json:"total_tokens"`
	CompletionTokens int                 `json:"completion_tokens"`
	PromptDetails    *promptDetailsDelta `json:"prompt_tokens_details,omitempty"`
}

type promptDetailsDelta struct {
	CachedTokens       int  `json:"cached_tokens"`
	CreatedCacheTokens *int `json:"created_cache_tokens,omitempty"`
}

func (u usage) delta() *usageDelta {
	d := &usageDelta{PromptTokens: u.PromptTokens, TotalTokens: u.TotalTokens, CompletionTokens: u.CompletionTokens}
	if u.PromptDetails != nil {
		d.PromptDetails = &promptDetailsDelta{
			CachedTokens: u.PromptDetails.CachedTokens, CreatedCacheTokens: u.PromptDetails.CreatedCacheTokens,
		}
	}
	return d
}

package api

import "encoding/json"

// The bodies of answers, in the key order of vLLM 0.32 and 0.33. A member that both versions always write is null here if it has no value;
// a member that one version leaves out has omitempty. testdata/exchanges checks both.

type chatAnswer struct {
	ID                string          `json:"id"`
	Object            string          `json:"object"`
	Created           int64           `json:"created"`
	Model             string          `json:"model"`
	Choices           []chatChoice    `json:"choices"`
	ServiceTier       *string         `json:"service_tier"`
	SystemFingerprint string          `json:"system_fingerprint"`
	Usage             usage           `json:"usage"`
	PromptLogprobs    *struct{}       `json:"prompt_logprobs"`
	PromptTokenIDs    []int32         `json:"prompt_token_ids"`
	PromptText        *string         `json:"prompt_text"`
	KVTransferParams  json.RawMessage `json:"kv_transfer_params"`
	ECTransferParams  *struct{}       `json:"ec_transfer_params"`
	Metrics           *struct{}       `json:"metrics"`
}

type chatChoice struct {
	Index         int             `json:"index"`
	Message       chatMessage     `json:"message"`
	Logprobs      json.RawMessage `json:"logprobs"`
	FinishReason  string          `json:"finish_reason"`
	StopReason    any             `json:"stop_reason"`
	TokenIDs      []int32         `json:"token_ids"`
	RoutedExperts *struct{}       `json:"routed_experts"`
	// WeightVersions is null without return_weight_versions, which no request here sets.
	WeightVersions json.RawMessage `json:"weight_versions,omitempty"`
}

type chatMessage struct {
	Role         string     `json:"role"`
	Content      *string    `json:"content"`
	Refusal      *string    `json:"refusal"`
	Annotations  *struct{}  `json:"annotations"`
	Audio        *struct{}  `json:"audio"`
	FunctionCall *struct{}  `json:"function_call"`
	ToolCalls    []toolCall `json:"tool_calls,omitempty"`
	Reasoning    *string    `json:"reasoning"`
}

type textAnswer struct {
	ID                string          `json:"id"`
	Object            string          `json:"object"`
	Created           int64           `json:"created"`
	Model             string          `json:"model"`
	Choices           []textChoice    `json:"choices"`
	ServiceTier       *string         `json:"service_tier"`
	SystemFingerprint string          `json:"system_fingerprint"`
	Usage             usage           `json:"usage"`
	KVTransferParams  json.RawMessage `json:"kv_transfer_params"`
	ECTransferParams  *struct{}       `json:"ec_transfer_params"`
	Metrics           *struct{}       `json:"metrics"`
}

type textChoice struct {
	Index          int             `json:"index"`
	Text           string          `json:"text"`
	Logprobs       json.RawMessage `json:"logprobs"`
	FinishReason   string          `json:"finish_reason"`
	StopReason     any             `json:"stop_reason"`
	TokenIDs       []int32         `json:"token_ids"`
	PromptLogprobs *struct{}       `json:"prompt_logprobs"`
	PromptTokenIDs []int32         `json:"prompt_token_ids"`
	RoutedExperts  *struct{}       `json:"routed_experts"`
	WeightVersions json.RawMessage `json:"weight_versions,omitempty"`
}

// chunk is one event of a stream, for chat and text completions alike; only the choices differ.
type chunk struct {
	ID                string          `json:"id"`
	Object            string          `json:"object"`
	Created           int64           `json:"created"`
	Model             string          `json:"model"`
	Choices           []any           `json:"choices"`
	Usage             *usageDelta     `json:"usage,omitempty"`
	SystemFingerprint string          `json:"system_fingerprint,omitempty"`
	PromptTokenIDs    json.RawMessage `json:"prompt_token_ids,omitempty"`
	PromptText        json.RawMessage `json:"prompt_text,omitempty"`
	KVTransferParams  json.RawMessage `json:"kv_transfer_params,omitempty"`
}

type chatChunkChoice struct {
	Index          int             `json:"index"`
	Delta          delta           `json:"delta"`
	Logprobs       json.RawMessage `json:"logprobs"`
	FinishReason   *string         `json:"finish_reason"`
	StopReason     json.RawMessage `json:"stop_reason,omitempty"`
	TokenIDs       json.RawMessage `json:"token_ids,omitempty"`
	WeightVersions json.RawMessage `json:"weight_versions,omitempty"`
}

type delta struct {
	Role      string          `json:"role,omitempty"`
	Content   *string         `json:"content,omitempty"`
	Reasoning *string         `json:"reasoning,omitempty"`
	ToolCalls []toolCallDelta `json:"tool_calls,omitempty"`
}

type textChunkChoice struct {
	Index          int             `json:"index"`
	Text           string          `json:"text"`
	Logprobs       json.RawMessage `json:"logprobs"`
	FinishReason   *string         `json:"finish_reason"`
	StopReason     json.RawMessage `json:"stop_reason"`
	PromptTokenIDs []int32         `json:"prompt_token_ids"`
	TokenIDs       json.RawMessage `json:"token_ids"`
	WeightVersions json.RawMessage `json:"weight_versions,omitempty"`
}

type usage struct {
	PromptTokens      int            `json:"prompt_tokens"`
	TotalTokens       int            `json:"total_tokens"`
	CompletionTokens  int            `json:"completion_tokens"`
	PromptDetails     *promptDetails `json:"prompt_tokens_details"`
	CompletionDetails *struct{}      `json:"completion_tokens_details"`
}

type promptDetails struct {
	CachedTokens       int       `json:"cached_tokens"`
	CreatedCacheTokens *int      `json:"created_cache_tokens"`
	MultimodalTokens   *struct{} `json:"multimodal_tokens"`
}

// usageDelta is the usage in a stream; it omits members that are null.
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

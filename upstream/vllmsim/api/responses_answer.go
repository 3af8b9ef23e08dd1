package api

import (
	"encoding/json"
	"fmt"

	"carryover/upstream/vllmsim/request"
)

// responseObject is a response, in an answer and in events, in the key order of testdata/exchanges/vllm-0.32-agents 08 and vllm-0.33.
type responseObject struct {
	ID                 string             `json:"id"`
	CreatedAt          int64              `json:"created_at"`
	IncompleteDetails  *incompleteDetails `json:"incomplete_details"`
	Instructions       *string            `json:"instructions"`
	Metadata           json.RawMessage    `json:"metadata"`
	Model              string             `json:"model"`
	Object             string             `json:"object"`
	Output             []any              `json:"output"`
	ParallelToolCalls  bool               `json:"parallel_tool_calls"`
	Temperature        json.RawMessage    `json:"temperature"`
	ToolChoice         json.RawMessage    `json:"tool_choice"`
	Tools              []request.Tool     `json:"tools"`
	TopP               json.RawMessage    `json:"top_p"`
	Background         bool               `json:"background"`
	MaxOutputTokens    int                `json:"max_output_tokens"`
	MaxToolCalls       *int               `json:"max_tool_calls"`
	PreviousResponseID *string            `json:"previous_response_id"`
	Prompt             *struct{}          `json:"prompt"`
	PromptCacheOptions json.RawMessage    `json:"prompt_cache_options,omitempty"` // this member and the next two: since 0.33
	PromptCacheKey     json.RawMessage    `json:"prompt_cache_key,omitempty"`
	PromptCacheKept    json.RawMessage    `json:"prompt_cache_retention,omitempty"`
	Reasoning          json.RawMessage    `json:"reasoning"`
	SafetyIdentifier   json.RawMessage    `json:"safety_identifier,omitempty"` // since 0.33
	ServiceTier        string             `json:"service_tier"`
	Status             string             `json:"status"`
	Text               json.RawMessage    `json:"text"`
	TopLogprobs        *int               `json:"top_logprobs"`
	Truncation         string             `json:"truncation"`
	Usage              json.RawMessage    `json:"usage"`
	User               *string            `json:"user"`
	PresencePenalty    json.RawMessage    `json:"presence_penalty"`
	FrequencyPenalty   json.RawMessage    `json:"frequency_penalty"`
	KVTransferParams   json.RawMessage    `json:"kv_transfer_params"`
	ECTransferParams   *struct{}          `json:"ec_transfer_params"`
	InputMessages      []rawMessage       `json:"input_messages"`
	OutputMessages     []rawMessage       `json:"output_messages"`
}

type incompleteDetails struct {
	Reason string `json:"reason"`
}

const rawMessageType = "raw_message_tokens"

// rawMessage is what enable_response_messages adds about the prompt and the answer.
type rawMessage struct {
	Message string  `json:"message"`
	Tokens  []int32 `json:"tokens"`
	Type    string  `json:"type"`
}

// reasoningItem is a thought; its content is null until it is complete.
type reasoningItem struct {
	ID               string          `json:"id"`
	Summary          []struct{}      `json:"summary"`
	Type             string          `json:"type"`
	Content          []reasoningPart `json:"content"`
	EncryptedContent *string         `json:"encrypted_content"`
	Status           *string         `json:"status"`
}

type reasoningPart struct {
	Text string `json:"text"`
	Type string `json:"type"`
}

func newReasoningItem(id string, status, text *string) reasoningItem {
	item := reasoningItem{ID: id, Summary: []struct{}{}, Type: "reasoning", Status: status}
	if text != nil {
		item.Content = []reasoningPart{{Text: *text, Type: "reasoning_text"}}
	}
	return item
}

// messageItem is a text; its content is empty until it is complete.
type messageItem struct {
	ID      string        `json:"id"`
	Content []messagePart `json:"content"`
	Role    string        `json:"role"`
	Status  string        `json:"status"`
	Type    string        `json:"type"`
	Phase   *string       `json:"phase"`
}

type messagePart struct {
	Annotations []struct{} `json:"annotations"`
	Text        string     `json:"text"`
	Type        string     `json:"type"`
	Logprobs    []struct{} `json:"logprobs"`
}

func newMessageItem(id, status string, text *string) messageItem {
	item := messageItem{ID: id, Content: []messagePart{}, Role: "assistant", Status: status, Type: "message"}
	if text != nil {
		item.Content = append(item.Content, newMessagePart(*text))
	}
	return item
}

func newMessagePart(text string) messagePart {
	return messagePart{Annotations: []struct{}{}, Text: text, Type: "output_text"}
}

type callItem struct {
	Arguments string    `json:"arguments"`
	CallID    string    `json:"call_id"`
	Name      string    `json:"name"`
	Type      string    `json:"type"`
	ID        string    `json:"id"`
	Async     *bool     `json:"async"`
	Caller    *struct{} `json:"caller"`
	Namespace *string   `json:"namespace"`
	Status    string    `json:"status"`
}

// responseUsage has zeros where chat omits details without --enable-prompt-tokens-details.
func responseUsage(u usage, thoughts int) json.RawMessage {
	cached, created := 0, 0
	if d := u.PromptDetails; d != nil {
		cached, created = d.CachedTokens, *d.CreatedCacheTokens
	}
	return json.RawMessage(fmt.Sprintf(`{"input_tokens":%d,"input_tokens_details":{"cached_tokens":%d,"cache_write_tokens":%d,"input_tokens_per_turn":[],`+
		`"cached_tokens_per_turn":[]},"output_tokens":%d,"output_tokens_details":{"reasoning_tokens":%d,"tool_output_tokens":0,"output_tokens_per_turn":[],`+
		`"tool_output_tokens_per_turn":[]},"total_tokens":%d}`, u.PromptTokens, cached, created, u.CompletionTokens, thoughts, u.TotalTokens))
}

package api

import (
	"encoding/json"
	"net/http"

	"carryover/upstream/vllmsim/request"
	"carryover/upstream/vllmsim/template"
	"carryover/upstream/vllmsim/wire"
)

// renderedMessage is what /v1/messages/render and /v1/responses/render answer, in the key order of testdata/exchanges/vllm-0.32-agents 01: the request as the
// token endpoint takes it.
type renderedMessage struct {
	RequestID        string                 `json:"request_id"`
	TokenIDs         []int32                `json:"token_ids"`
	TokenOffsets     *struct{}              `json:"token_offsets"`
	Features         *struct{}              `json:"features"`
	ContentParts     *struct{}              `json:"content_parts"`
	SamplingParams   samplingParams         `json:"sampling_params"`
	Model            string                 `json:"model"`
	ReasoningEnded   bool                   `json:"reasoning_ended"`
	ParserKwargs     parserKwargs           `json:"reasoning_parser_kwargs"`
	ReturnTokenIDs   *bool                  `json:"return_token_ids"`
	OutputMode       string                 `json:"output_mode"`
	Stream           bool                   `json:"stream"`
	StreamOptions    *request.StreamOptions `json:"stream_options"`
	CacheSalt        *string                `json:"cache_salt"`
	Priority         int                    `json:"priority"`
	KVTransferParams json.RawMessage        `json:"kv_transfer_params"`
	ECTransferParams *struct{}              `json:"ec_transfer_params"`
}

// samplingParams are the members that msgspec writes. It omits values that are the default itself, such as small integers and null.
type samplingParams struct {
	PresencePenalty   json.RawMessage `json:"presence_penalty"`
	FrequencyPenalty  json.RawMessage `json:"frequency_penalty"`
	RepetitionPenalty json.RawMessage `json:"repetition_penalty"`
	Temperature       json.RawMessage `json:"temperature"`
	TopP              json.RawMessage `json:"top_p"`
	MinP              json.RawMessage `json:"min_p"`
	Stop              []string        `json:"stop"`
	StopTokenIDs      []int32         `json:"stop_token_ids"`
	MaxTokens         int             `json:"max_tokens,omitempty"`
	SkipSpecialTokens bool            `json:"skip_special_tokens"`
	OutputKind        int             `json:"output_kind"`
	SkipClone         bool            `json:"skip_clone"`
	BadWords          []string        `json:"bad_words"`
	SkipReadingCache  bool            `json:"skip_reading_prefix_cache"`
}

type parserKwargs struct {
	TemplateKwargs renderedKwargs `json:"chat_template_kwargs"`
}

type renderedKwargs struct {
	CohereFormat        string `json:"cohere_format"`
	AddGenerationPrompt bool   `json:"add_generation_prompt"`
	ContinueFinal       bool   `json:"continue_final_message"`
}

// defaultMaxTokens is the max_tokens of SamplingParams.
const defaultMaxTokens = 16

// scaledOut refuses endpoints that exist only with --enable-scale-out.
func (s *Endpoints) scaledOut() error {
	if s.config().Render {
		return nil
	}
	return &wire.Error{Status: http.StatusForbidden, Kind: "PermissionDeniedError",
		Message: "Scale-out endpoints are disabled. Restart vllm serve with --enable-scale-out to enable them."}
}

// serveMessagesRender answers /v1/messages/render: the ids that /v1/messages would use.
func (s *Endpoints) serveMessagesRender(w http.ResponseWriter, req *http.Request) error {
	if err := s.scaledOut(); err != nil {
		return err
	}
	m, err := request.ReadMessages(req)
	if err != nil {
		return err
	}
	r, err := m.ChatRequest(s.config().MergeSystem)
	if err != nil {
		return err
	}
	a, err := s.rendered(r, "chatcmpl-"+requestID(req, r))
	if err != nil {
		return err
	}
	return wire.WriteJSON(w, http.StatusOK, a)
}

// rendered returns a request in the form that the token endpoint takes.
func (s *Endpoints) rendered(r *request.Completion, id string) (renderedMessage, error) {
	if err := s.checkModel(r.Model); err != nil {
		return renderedMessage{}, err
	}
	p, err := s.chatPrompt(r)
	if err != nil {
		return renderedMessage{}, err
	}
	limit, err := s.outputLimit(r, p.ids)
	if err != nil {
		return renderedMessage{}, err
	}
	a := renderedMessage{
		RequestID: id, TokenIDs: p.ids, SamplingParams: sampling(r, limit), Model: s.config().Answered(r.Model),
		ParserKwargs: parserKwargs{renderedKwargs{CohereFormat: "cmd4", AddGenerationPrompt: !r.ContinueFinal, ContinueFinal: r.ContinueFinal}},
		OutputMode:   "tokens", Stream: r.Stream, KVTransferParams: r.KVTransferParams,
	}
	if r.Stream {
		a.StreamOptions = &request.StreamOptions{IncludeUsage: true, ContinuousUsageStats: true}
	}
	if r.CacheSalt != "" {
		a.CacheSalt = &r.CacheSalt
	}
	return a, nil
}

func sampling(r *request.Completion, limit int) samplingParams {
	zero, one := json.RawMessage("0.0"), json.RawMessage("1.0")
	s := samplingParams{
		PresencePenalty: zero, FrequencyPenalty: zero, RepetitionPenalty: one, Temperature: one, TopP: one, MinP: zero,
		Stop: append([]string{}, r.Stops...), StopTokenIDs: []int32{}, OutputKind: 2, SkipClone: true, BadWords: []string{},
	}
	if limit != defaultMaxTokens {
		s.MaxTokens = limit
	}
	if r.Temperature != nil {
		s.Temperature = json.RawMessage(template.PythonNumber(json.Number(wire.RawJSON(*r.Temperature))))
	}
	return s
}

package api

import (
	"encoding/json"
	"fmt"
	"net/http"

	"carryover/upstream/vllmsim/wire"
)

// rendered is the answer of the render endpoints, in the key order of testdata/exchanges/vllm-0.32-agents 01: the request as the token
// endpoint takes it. Its sampling_params omit a value that is the same Python object as msgspec's default, such as a small integer or null.
// The answer for /v1/responses was not recorded; the same code of vLLM writes it.
const rendered = `{"request_id":%s,"token_ids":%s,"token_offsets":null,"features":null,"content_parts":null,"sampling_params":{` +
	`"presence_penalty":0.0,"frequency_penalty":0.0,"repetition_penalty":1.0,"temperature":%s,"top_p":1.0,"min_p":0.0,"stop":%s,"stop_token_ids":[],%s` +
	`"skip_special_tokens":false,"output_kind":2,"skip_clone":true,"bad_words":[],"skip_reading_prefix_cache":false},"model":%s,"reasoning_ended":false,` +
	`"reasoning_parser_kwargs":{"chat_template_kwargs":{"cohere_format":"cmd4","add_generation_prompt":%t,"continue_final_message":%t}},` +
	`"return_token_ids":null,"output_mode":"tokens","stream":%t,"stream_options":%s,"cache_salt":%s,"priority":0,"kv_transfer_params":%s,"ec_transfer_params":null}`

// defaultMaxTokens is the max_tokens of SamplingParams.
const defaultMaxTokens = 16

// serveRender answers with the ids of a prompt: a list for /v1/completions, an object for the other APIs. The endpoints need
// --enable-scale-out.
func (s *Endpoints) serveRender(w http.ResponseWriter, req *http.Request) error {
	if !s.config().Render {
		return &wire.Error{Status: http.StatusForbidden, Kind: "PermissionDeniedError",
			Message: "Scale-out endpoints are disabled. Restart vllm serve with --enable-scale-out to enable them."}
	}
	c, _, err := s.read(req)
	if err == nil {
		err = c.prepare()
	}
	if err != nil {
		return err
	}
	var answers []json.RawMessage
	for n, prompt := range c.prompts {
		answers = append(answers, c.rendered(prompt, c.choices[n*c.request.Children()].engineReq.MaxTokens))
	}
	if c.chat {
		return wire.WriteJSON(w, http.StatusOK, answers[0])
	}
	return wire.WriteJSON(w, http.StatusOK, answers)
}

func (c *completion) rendered(prompt []int32, limit int) json.RawMessage {
	r, most, options, salt := c.request, "", wire.Null, wire.Null
	if limit != defaultMaxTokens {
		most = fmt.Sprintf(`"max_tokens":%d,`, limit)
	}
	if r.Stream {
		options = json.RawMessage(`{"include_usage":true,"continuous_usage_stats":true}`)
	}
	if r.CacheSalt != "" {
		salt = wire.RawJSON(r.CacheSalt)
	}
	return json.RawMessage(fmt.Sprintf(rendered, wire.RawJSON(c.id), wire.RawJSON(prompt), floatOr(r.Temperature, 1), wire.RawJSON(append([]string{}, r.Stops...)), most,
		wire.RawJSON(c.endpoints.config().Answered(r.Model)), !r.ContinueFinal, r.ContinueFinal, r.Stream, options, salt, wire.RawJSON(r.KVTransferParams)))
}

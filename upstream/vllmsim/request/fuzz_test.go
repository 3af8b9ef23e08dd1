package request

import (
	"net/http"
	"strings"
	"testing"

	"carryover/upstream/vllmsim/config"
	"carryover/upstream/vllmsim/wire"
)

func FuzzRequest_ParsesOrRefuses(f *testing.F) {
	for _, body := range []string{
		`{"messages":[{"role":"user","content":"hi"}],"kv_transfer_params":{"do_remote_decode":true,"remote_block_ids":[[1]]}}`,
		`{"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url"}]}],"stop":["a"],"n":2}`,
		`{"messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"{}"}}]}],"tools":[{}],"logprobs":true}`,
		`{"kv_transfer_params":{"remote_block_ids":[1,[2],null],"do_remote_prefill":"x","prompt_token_ids":[1e9]}}`,
		`{"prompt":[1,2],"stream":true,"kv_transfer_params":{"do_remote_decode":true,"remote_block_ids":[[1]],"remote_num_tokens":2}}`,
		`{"prompt":[[1,2],[3]],"logprobs":3}`, `{`, `[]`, `null`, `{"messages":null}`, `{"documents":[1],"reasoning_effort":"x","messages":[]}`,
	} {
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body string) {
		r, err := Parse([]byte(body))
		if err != nil {
			if api := wire.AsError(err); api.Status != http.StatusBadRequest {
				t.Errorf("%q is refused with %d, want 400", body, api.Status)
			}
			return
		}
		if r.Params != nil {
			_, _, _ = PromptTokenIDs(r.Params)
			for key := range r.Params.Members {
				r.Params.Truthy(key)
			}
		}
		if r.HandsBack(wire.PathCompletions) && (r.Params.Decodes() || !r.Params.Truthy("remote_block_ids") || len(r.Prompt) == 0) {
			t.Errorf("%q counts as a hand-back", body)
		}
		if r.Validate(true) != nil {
			return
		}
		for _, name := range []string{config.TemplateChatML, config.TemplateStripReasoning, config.TemplateThinkingPrompt, config.TemplateTrim} {
			_, _ = r.Conversation(true).Render(name)
		}
	})
}

// FuzzResponses_RenderOrRefuse has any body rendered: what is refused is a 400, and what is not is a prompt.
func FuzzResponses_RenderOrRefuse(f *testing.F) {
	for _, body := range []string{
		`{"input":"hi","instructions":"Be kind.","reasoning":{"effort":"low"},"stop":"x"}`,
		`{"input":[{"role":"user","content":[{"type":"input_text","text":"a"},{"type":"input_image","image_url":"u"}]}]}`,
		`{"input":[{"type":"reasoning","summary":[]},{"type":"function_call","name":"f","arguments":"{}"},{"type":"function_call_output","output":[]}]}`,
		`{"input":[{"role":"assistant","content":[],"status":"incomplete"}],"tools":[{"type":"function","name":"f"},{"type":"custom","format":{}}]}`,
		`{"input":[null],"kv_transfer_params":{"prompt_token_ids":[1]}}`, `{"input":null}`, `{"input":[],"max_output_tokens":0}`, `{`, `null`,
	} {
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body string) {
		r, err := parseResponses([]byte(body))
		var chat *Completion
		if err == nil {
			chat, err = r.ChatRequest()
		}
		if err != nil {
			if api := wire.AsError(err); api.Status != 400 {
				t.Errorf("%q is refused with %d, want 400", body, api.Status)
			}
			return
		}
		text, err := chat.Conversation(true).Render(config.TemplateChatML)
		if err == nil && !chat.ContinueFinal && !strings.HasSuffix(text, "<|im_start|>assistant\n") {
			t.Errorf("%q renders %q", body, text)
		}
	})
}

package answer

import (
	"encoding/json"
	"strings"
	"testing"

	"carryover/upstream/body"
)

const (
	chatEnvelope = `{"id":"chatcmpl-R","object":"chat.completion.chunk","created":1,"model":"m","choices":[`
	textEnvelope = `{"id":"cmpl-R","object":"text_completion","created":1,"model":"m","choices":[`
)

// chatWhole is a whole answer as JSONResponse prints it (chat_completion/api_router.py), with null for all that is not
// given.
func chatWhole(message, choice, usage string) string {
	return `{"id":"chatcmpl-R","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant",` + message +
		`},` + choice + `,"routed_experts":null}],"service_tier":null,"system_fingerprint":"fp","usage":` + usage +
		`,"prompt_logprobs":null,"prompt_token_ids":null,"prompt_text":null,"kv_transfer_params":{"secret":1},"ec_transfer_params":null,"metrics":null}`
}

// The expected chunks are what the response models of vLLM 0.32 print for these values (model_dump_json, exclude_unset, and
// exclude_none for the chunk of the usage).
func TestEventBuffer_PrintsWhatVLLMPrints(t *testing.T) {
	const (
		stopped = `"logprobs":null,"finish_reason":"stop","stop_reason":null,"token_ids":null`
		plain   = `{"prompt_tokens":9,"total_tokens":12,"completion_tokens":3,"prompt_tokens_details":null,"completion_tokens_details":null}`
		cached  = `{"prompt_tokens":9,"total_tokens":12,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":0,"created_cache_tokens":0,"multimodal_tokens":null},"completion_tokens_details":null}`
		role    = chatEnvelope + `{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]`
		nobody  = `"refusal":null,"annotations":null,"audio":null,"function_call":null`
	)
	for _, row := range []struct {
		name   string
		buffer EventBuffer
		answer string
		want   []string
	}{
		{
			"chat", EventBuffer{}, chatWhole(`"content":"Hi é\n",`+nobody+`,"reasoning":null`, stopped, cached),
			[]string{
				role + `,"prompt_token_ids":null,"prompt_text":null}`,
				chatEnvelope + `{"index":0,"delta":{"content":"Hi é\n"},"logprobs":null,"finish_reason":null,"token_ids":null}]}`,
				chatEnvelope + `{"index":0,"delta":{"content":""},"logprobs":null,"finish_reason":"stop","stop_reason":null,"token_ids":null}],"system_fingerprint":"fp"}`,
			},
		},
		{
			"usage", EventBuffer{IncludeUsage: true}, chatWhole(`"content":"Hi",`+nobody+`,"reasoning":null`, stopped, cached),
			[]string{
				role + `,"prompt_token_ids":null,"prompt_text":null}`,
				chatEnvelope + `{"index":0,"delta":{"content":"Hi"},"logprobs":null,"finish_reason":null,"token_ids":null}]}`,
				chatEnvelope + `{"index":0,"delta":{"content":""},"logprobs":null,"finish_reason":"stop","stop_reason":null,"token_ids":null}]}`,
				chatEnvelope + `],"usage":{"prompt_tokens":9,"total_tokens":12,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":0,"created_cache_tokens":0}},"system_fingerprint":"fp"}`,
			},
		},
		{
			"usage on every chunk, reasoning, stop token", EventBuffer{IncludeUsage: true, Continuous: true},
			chatWhole(`"content":"Hi",`+nobody+`,"reasoning":"So."`, `"logprobs":{"content":[]},"finish_reason":"stop","stop_reason":7,"token_ids":[4,5,7]`, plain),
			[]string{
				role + `,"usage":{"prompt_tokens":9,"total_tokens":9,"completion_tokens":0,"completion_tokens_details":null},"prompt_token_ids":null,"prompt_text":null}`,
				chatEnvelope + `{"index":0,"delta":{"reasoning":"So."},"logprobs":null,"finish_reason":null,"token_ids":[]}],"usage":{"prompt_tokens":9,"total_tokens":12,"completion_tokens":3,"completion_tokens_details":null}}`,
				chatEnvelope + `{"index":0,"delta":{"content":"Hi"},"logprobs":{"content":[]},"finish_reason":null,"token_ids":[4,5,7]}],"usage":{"prompt_tokens":9,"total_tokens":12,"completion_tokens":3,"completion_tokens_details":null}}`,
				chatEnvelope + `{"index":0,"delta":{},"logprobs":null,"finish_reason":"stop","stop_reason":7,"token_ids":[]}],"usage":{"prompt_tokens":9,"total_tokens":12,"completion_tokens":3,"completion_tokens_details":null}}`,
				chatEnvelope + `],"usage":{"prompt_tokens":9,"total_tokens":12,"completion_tokens":3},"system_fingerprint":"fp"}`,
			},
		},
		{
			"two tools, without text", EventBuffer{},
			chatWhole(`"content":null,`+nobody+`,"tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{\"x\": 1}"}},{"id":"b","type":"function","function":{"name":"g","arguments":""}}],"reasoning":null`,
				`"logprobs":null,"finish_reason":"tool_calls","stop_reason":null,"token_ids":null`, plain),
			[]string{
				role + `,"prompt_token_ids":null,"prompt_text":null}`,
				chatEnvelope + `{"index":0,"delta":{"tool_calls":[{"id":"a","type":"function","index":0,"function":{"name":"f"}}]},"logprobs":null,"finish_reason":null,"token_ids":null}]}`,
				chatEnvelope + `{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"x\": 1}"}}]},"logprobs":null,"finish_reason":null,"token_ids":null}]}`,
				chatEnvelope + `{"index":0,"delta":{"tool_calls":[{"id":"b","type":"function","index":1,"function":{"name":"g"}}]},"logprobs":null,"finish_reason":null,"token_ids":null}]}`,
				chatEnvelope + `{"index":0,"delta":{},"logprobs":null,"finish_reason":"tool_calls","stop_reason":null,"token_ids":null}],"system_fingerprint":"fp"}`,
			},
		},
		{
			"text", EventBuffer{API: body.Text, IncludeUsage: true, Continuous: true},
			`{"id":"cmpl-R","object":"text_completion","created":1,"model":"m","choices":[{"index":0,"text":"x","logprobs":null,"finish_reason":"length","stop_reason":null,"token_ids":[3],"prompt_logprobs":null,"prompt_token_ids":[1,2],"routed_experts":null}],"service_tier":null,"system_fingerprint":"fp","usage":` + cached + `,"kv_transfer_params":null,"ec_transfer_params":null,"metrics":null}`,
			[]string{
				textEnvelope + `{"index":0,"text":"x","logprobs":null,"finish_reason":null,"stop_reason":null,"prompt_token_ids":[1,2],"token_ids":[3]}],"usage":{"prompt_tokens":9,"total_tokens":12,"completion_tokens":3}}`,
				textEnvelope + `{"index":0,"text":"","logprobs":null,"finish_reason":"length","stop_reason":null,"prompt_token_ids":null,"token_ids":[]}],"usage":{"prompt_tokens":9,"total_tokens":12,"completion_tokens":3}}`,
				textEnvelope + `],"usage":{"prompt_tokens":9,"total_tokens":12,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":0,"created_cache_tokens":0}},"system_fingerprint":"fp"}`,
			},
		},
		{
			"an older engine's, in several lines, nothing said", EventBuffer{},
			"{\n \"id\": \"chatcmpl-R\",\n \"created\": 1, \"model\": \"m\", \"choices\": [\r\n{\"message\": {\"role\": \"assistant\", \"content\": \"\", \"reasoning_content\": \"So.\"},\n\"logprobs\": {\n\"content\": [\r\n]}, \"finish_reason\": \"stop\", \"stop_reason\": null}]}",
			[]string{
				role + `}`,
				chatEnvelope + `{"index":0,"delta":{"reasoning_content":"So."},"logprobs":null,"finish_reason":null}]}`,
				chatEnvelope + `{"index":0,"delta":{},"logprobs":{"content":[]},"finish_reason":"stop","stop_reason":null}]}`,
			},
		},
	} {
		b := row.buffer
		if err := b.Write([]byte(row.answer)); err != nil {
			t.Errorf("%s: %v", row.name, err)
			continue
		}
		want := "data: " + strings.Join(append(row.want, "[DONE]"), "\n\ndata: ") + "\n\n"
		if string(b.out) != want || b.events != int64(len(row.want)+1) {
			t.Errorf("%s: got %d events\n%s\nwant\n%s", row.name, b.events, b.out, want)
		}
	}
}

// Whatever an engine answers, a stream is events of one line of JSON and [DONE], and nothing but what is known goes out.
func FuzzEventBuffer(f *testing.F) {
	f.Add([]byte(chatWhole(`"content":"Hi","reasoning":"So."`, `"logprobs":null,"finish_reason":"stop","stop_reason":null,"token_ids":[1]`, `{"prompt_tokens":9,"completion_tokens_details":{"reasoning_tokens":1}}`)), uint8(7))
	f.Fuzz(func(t *testing.T, answer []byte, options uint8) {
		b := EventBuffer{IncludeUsage: options&1 != 0, Continuous: options&3 == 3}
		if options&4 == 0 {
			b.API = body.Text
		}
		if b.Write(answer) != nil {
			if len(b.out) != 0 {
				t.Errorf("got %q of an answer that is refused", b.out)
			}
			return
		}
		events, ended := strings.CutSuffix(string(b.out), "\n\ndata: [DONE]\n\n")
		if !ended {
			t.Fatalf("got %q, want an end", b.out)
		}
		for event := range strings.SplitSeq(events, "\n\n") {
			data, isData := strings.CutPrefix(event, "data: ")
			var chunk map[string]json.RawMessage
			if err := json.Unmarshal([]byte(data), &chunk); err != nil || !isData || strings.ContainsAny(data, "\r\n") {
				t.Fatalf("got event %q (%v), want one line with an object", event, err)
			}
			for name := range chunk {
				switch name {
				case "id", "object", "created", "model", "choices", "usage", "system_fingerprint", "prompt_token_ids", "prompt_text", "metrics":
				default:
					t.Errorf("got member %q in %s", name, data)
				}
			}
		}
	})
}

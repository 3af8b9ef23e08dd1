package vllmsim

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"carryover/upstream/vllmsim/wire"
)

func get(t *testing.T, i *Instance, path string) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, i.URL()+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	return do(t, req)
}

func TestTokenize_GivesPrefillsOwnIDs(t *testing.T) {
	tools := []any{object{"type": "function", "function": object{"name": "f", "parameters": object{"b": 1, "a": 2}}}}
	for _, template := range []string{TemplateChatML, TemplateStripReasoning, TemplateThinkingPrompt, TemplateTrim} {
		i := startInstance(t, func(c *Config) { c.Template, c.Render = template, true })
		for name, members := range map[string]object{
			"plain":         {"messages": []any{user("hi")}},
			"parts":         {"messages": []any{object{"role": "user", "content": []any{object{"type": "text", "text": "a"}, object{"type": "text", "text": "b"}}}}},
			"tools":         {"messages": []any{user("hi")}, "tools": tools},
			"kwargs":        {"messages": []any{user("hi")}, "chat_template_kwargs": object{"reasoning_effort": "high"}},
			"no generation": {"messages": []any{user("hi")}, "add_generation_prompt": false},
			"continued":     {"messages": []any{user("hi"), assistant("well")}, "add_generation_prompt": false, "continue_final_message": true},
		} {
			body := with(members, object{"model": "sim"})
			want := ids(post(t, i, wire.PathChat, with(body, object{"max_tokens": 1, "return_token_ids": true})).body["prompt_token_ids"])
			if got := ids(post(t, i, "/tokenize", body).body["tokens"]); len(got) == 0 || !slices.Equal(got, want) {
				t.Errorf("%s %s: /tokenize gives %v, prefill %v", template, name, got, want)
			}
			if got := ids(post(t, i, wire.PathChat+"/render", body).body["token_ids"]); !slices.Equal(got, want) {
				t.Errorf("%s %s: render gives %v, prefill %v", template, name, got, want)
			}
		}
	}
	i := startInstance(t, nil)
	body := object{"model": "sim", "messages": []any{user("hi")}, "reasoning_effort": "high"}
	chat := ids(post(t, i, wire.PathChat, with(body, object{"max_tokens": 1, "return_token_ids": true})).body["prompt_token_ids"])
	if got := ids(post(t, i, "/tokenize", body).body["tokens"]); slices.Equal(got, chat) {
		t.Error("/tokenize knows reasoning_effort; only its template arguments may")
	}
	if got := post(t, i, "/tokenize", object{"model": "sim", "prompt": "hi there", "return_token_strs": true}).body["token_strs"].([]any); len(got) == 0 {
		t.Error("no token_strs")
	}
}

func TestPromptTokenIDs_ReplaceTheTemplate(t *testing.T) {
	forwarded := ids(post(t, startInstance(t, nil), "/tokenize", object{"model": "sim", "messages": []any{user("SAY forwarded")}}).body["tokens"])
	for _, c := range []struct {
		name  string
		old   bool
		extra object
		used  bool
	}{
		{"used", false, nil, true},
		{"ignored by an old engine", true, nil, false},
		{"ignored for echo", false, object{"echo": true}, false},
		{"ignored for images", false, object{"messages": []any{object{"role": "user", "content": []any{
			object{"type": "image_url", "image_url": object{"url": "data:,"}}, object{"type": "text", "text": "SAY rendered"}}}}}, false},
	} {
		i := startInstance(t, func(cfg *Config) { cfg.PromptTokenIDs = !c.old })
		got := post(t, i, wire.PathChat, with(object{"model": "sim", "messages": []any{user("SAY rendered")}, "return_token_ids": true,
			"kv_transfer_params": with(prefillTemplate(), object{"prompt_token_ids": forwarded})}, c.extra))
		if used := got.text() == "forwarded"; used != c.used || used != slices.Equal(ids(got.body["prompt_token_ids"]), forwarded) {
			t.Errorf("%s: said %q", c.name, got.text())
		}
	}
	old := startInstance(t, func(cfg *Config) { cfg.PromptTokenIDs = false })
	probe := post(t, old, wire.PathChat, object{"model": "sim", "messages": []any{user("hi")}, "max_tokens": 1,
		"kv_transfer_params": object{"do_remote_decode": true, "prompt_token_ids": []any{1, "x"}}})
	if probe.status != http.StatusOK || old.Stats().Pins != 1 {
		t.Errorf("an old engine answers the probe %d with %d pins, want 200 with 1", probe.status, old.Stats().Pins)
	}
}

func TestRequestID_ComesFromHeaderThenBody(t *testing.T) {
	i := startInstance(t, nil)
	got := post(t, i, wire.PathChat, object{"model": "sim", "messages": []any{user("hi")}, "max_tokens": 1, "request_id": "mine", "kv_transfer_params": object{"x": 1}})
	if got.body["id"] != "chatcmpl-mine" || !strings.HasPrefix(got.params()["remote_request_id"].(string), "chatcmpl-mine-") {
		t.Errorf("id %v, remote_request_id %v", got.body["id"], got.params()["remote_request_id"])
	}
	if got.header.Get("X-Request-Id") != "" {
		t.Error("X-Request-Id answered although --enable-request-id-headers is off")
	}
}

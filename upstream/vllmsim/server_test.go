package vllmsim

import (
	"bytes"
	"net/http"
	"slices"
	"strconv"
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

func TestServer_RefusesBadRequests(t *testing.T) {
	i := startInstance(t, func(c *Config) { c.MaxModelLen = 100 })
	chat := func(members object) object {
		return with(object{"model": "sim", "messages": []any{user("hi")}}, members)
	}
	for _, c := range []struct {
		name   string
		path   string
		body   any
		status int
		param  string
	}{
		{"min_tokens above max_tokens", wire.PathChat, chat(object{"min_tokens": 5, "max_tokens": 1}), 400, "min_tokens"},
		{"stream_options without stream", wire.PathChat, chat(object{"stream_options": object{"include_usage": true}}), 400, "stream_options"},
		{"n with greedy sampling", wire.PathChat, chat(object{"n": 2, "temperature": 0}), 400, "n"},
		{"n of 0", wire.PathChat, chat(object{"n": 0}), 400, "n"},
		{"max_tokens of 0", wire.PathChat, chat(object{"max_tokens": 0}), 400, "max_tokens"},
		{"unknown model", wire.PathChat, chat(object{"model": "x"}), 404, "model"},
		{"no messages", wire.PathChat, object{"model": "sim"}, 400, "body.messages"},
		{"no prompt", wire.PathCompletions, object{"model": "sim"}, 400, "prompt"},
		{"empty prompt", wire.PathCompletions, object{"model": "sim", "prompt": []int{}}, 400, "prompt"},
		{"prompt id out of vocabulary", wire.PathCompletions, object{"model": "sim", "prompt": []int{99999}}, 400, ""},
		{"not JSON", wire.PathChat, []byte(`{"model":`), 400, "body.8"},
		{"wrong type", wire.PathChat, chat(object{"max_tokens": "many"}), 400, "body.max_tokens"},
		{"params of wrong type", wire.PathChat, chat(object{"kv_transfer_params": "x"}), 400, "body.kv_transfer_params"},
		{"both ways to end a prompt", wire.PathChat, chat(object{"continue_final_message": true}), 400, ""},
		{"prompt too long", wire.PathChat, chat(object{"messages": []any{user(longText + longText)}}), 400, "input_tokens"},
		{"prompt and output too long", wire.PathChat, chat(object{"max_tokens": 99}), 400, "input_tokens"},
		{"render switched off", wire.PathChat + "/render", chat(nil), 403, ""},
		{"ids of wrong type", wire.PathChat, chat(object{"kv_transfer_params": object{"prompt_token_ids": []any{1, "x"}}}), 400, "kv_transfer_params.prompt_token_ids"},
		{"no ids", wire.PathChat, chat(object{"kv_transfer_params": object{"prompt_token_ids": []any{}}}), 400, "kv_transfer_params.prompt_token_ids"},
		{"negative id", wire.PathChat, chat(object{"kv_transfer_params": object{"prompt_token_ids": []any{-1}}}), 400, "kv_transfer_params.prompt_token_ids"},
		{"null id", wire.PathChat, chat(object{"kv_transfer_params": object{"prompt_token_ids": []any{1, nil}}}), 400, "kv_transfer_params.prompt_token_ids"},
	} {
		got := post(t, i, c.path, c.body)
		detail, _ := got.body["error"].(object)
		param, _ := detail["param"].(string)
		if got.status != c.status || param != c.param || detail["code"] != float64(c.status) {
			t.Errorf("%s: %d %s, want %d with param %q", c.name, got.status, got.raw, c.status, c.param)
		}
	}
	if s := i.Stats(); s.Pins != 0 || s.Requests != 0 {
		t.Errorf("pins %d, engine requests %d; want none", s.Pins, s.Requests)
	}
}

func TestServer_ContentTypeAndRoutes(t *testing.T) {
	i := startInstance(t, nil)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, i.URL()+wire.PathChat, strings.NewReader(`{}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "text/plain")
	if got := do(t, req); got.status != http.StatusBadRequest {
		t.Errorf("text/plain: %d, want 400", got.status)
	}
	for path, want := range map[string]int{"/nothing": 404, "/v1/embeddings": 404, wire.PathChat: 405, "/health": 200, "/ping": 200, "/version": 200} {
		if got := get(t, i, path); got.status != want {
			t.Errorf("GET %s: %d, want %d", path, got.status, want)
		}
	}
	if got := get(t, i, "/nothing"); string(got.raw) != `{"detail":"Not Found"}` {
		t.Errorf("unknown route says %s", got.raw)
	}
}

func TestServer_APIKeyGuardsV1Only(t *testing.T) {
	i := startInstance(t, func(c *Config) { c.APIKey = "k" })
	if got := get(t, i, "/v1/models"); got.status != http.StatusUnauthorized || string(got.raw) != `{"error":"Unauthorized"}` {
		t.Errorf("without key: %d %s, want 401", got.status, got.raw)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, i.URL()+"/v1/models", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer k")
	if got := do(t, req); got.status != http.StatusOK {
		t.Errorf("with key: %d, want 200", got.status)
	}
	if got := post(t, i, "/tokenize", object{"model": "sim", "prompt": "hi"}); got.status != http.StatusOK {
		t.Errorf("/tokenize without key: %d, want 200", got.status)
	}
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

func TestDataParallel_RanksAreEnginesOfTheirOwn(t *testing.T) {
	p := startInstance(t, func(c *Config) { c.DPRanks = 2 })
	d := startInstance(t, nil)
	seen := map[string]bool{}
	for range 2 {
		messages := []any{user(longText)}
		prefill, _ := turn(t, p, d, messages, nil, object{"cache_salt": wire.RandomHex(4)})
		id := prefill.params()["remote_engine_id"].(string)
		seen[id[strings.LastIndex(id, "_"):]] = true
	}
	if !seen["_dp0"] || !seen["_dp1"] {
		t.Errorf("ranks used in turn: %v, want _dp0 and _dp1", seen)
	}
	for header, want := range map[string]int{"1": 200, "2": 400, "x": 200} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.URL()+wire.PathCompletions, strings.NewReader(`{"prompt":"hi","max_tokens":1}`))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("X-Data-Parallel-Rank", header)
		if got := do(t, req); got.status != want {
			t.Errorf("rank %s: %d, want %d", header, got.status, want)
		}
	}
	metrics := get(t, p, "/metrics").raw
	for rank := range 2 {
		if !bytes.Contains(metrics, []byte(`vllm:kv_cache_usage_perc{engine="`+strconv.Itoa(rank)+`"`)) {
			t.Errorf("no metrics of rank %d", rank)
		}
	}
	if bytes.Count(metrics, []byte("# TYPE vllm:kv_cache_usage_perc gauge")) != 1 {
		t.Error("a metric is described more than once")
	}
	assertClean(t, p, d)
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

package vllmsim

import (
	"net/http"
	"slices"
	"testing"
)

func TestPromptTokenIDs_ReplaceTheTemplate(t *testing.T) {
	forwarded := ids(post(t, startInstance(t, nil), "/tokenize", asking("SAY forwarded")).body["tokens"])
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
		got := chat(t, i, with(with(asking("SAY rendered"), object{"return_token_ids": true,
			"kv_transfer_params": with(prefillTemplate(), object{"prompt_token_ids": forwarded})}), c.extra))
		if used := got.text() == "forwarded"; used != c.used || used != slices.Equal(ids(got.body["prompt_token_ids"]), forwarded) {
			t.Errorf("%s: said %q", c.name, got.text())
		}
	}
	old := startInstance(t, func(cfg *Config) { cfg.PromptTokenIDs = false })
	probe := chat(t, old, with(asking("hi"), object{"max_tokens": 1,
		"kv_transfer_params": object{"do_remote_decode": true, "prompt_token_ids": []int{1, -1}}}))
	if probe.status != http.StatusOK || old.Stats().Pins != 1 {
		t.Errorf("an old engine answers the probe %d with %d pins, want 200 with 1", probe.status, old.Stats().Pins)
	}
}

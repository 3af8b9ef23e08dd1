package vllmsim

import (
	"net/http"
	"slices"
	"testing"

	"carryover/upstream/vllmsim/wire"
)

// An engine that is given a prompt and the first token of its answer goes on as the one that sampled it, as a model does.
func TestReply_GoesOnBehindItsFirstToken(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Config)
		body   object
	}{
		"natural":         {body: object{"messages": []any{user("Tell me about the river.")}}},
		"said":            {body: object{"messages": []any{user("SAY A short answer, and no more.")}}},
		"thought":         {body: object{"messages": []any{user("THINK and SAY that.")}}},
		"no thought":      {change: func(c *Config) { c.Template = TemplateThinkingPrompt }, body: object{"messages": []any{user("And then?")}}},
		"not canonical":   {change: func(c *Config) { c.Sampling = SamplingNoncanonical }, body: object{"messages": []any{user("And then?")}}},
		"half a letter":   {body: object{"messages": []any{user("SAY \U0001d11e is a clef.")}}},
		"text":            {body: object{"prompt": "The river carries letters."}},
		"text, said":      {body: object{"prompt": "SAY these words."}},
		"end not allowed": {body: object{"messages": []any{user("HUSH")}, "ignore_eos": true, "max_tokens": 20}},
	} {
		t.Run(name, func(t *testing.T) {
			i := startInstance(t, c.change)
			path := wire.PathChat
			if c.body["prompt"] != nil {
				path = wire.PathCompletions
			}
			body := with(c.body, object{"model": "sim", "return_token_ids": true})
			if body["max_tokens"] == nil {
				body["max_tokens"] = 4096
			}
			alone := post(t, i, path, body)
			alone.answers(t, http.StatusOK)
			prompt, said := alone.body["prompt_token_ids"], ids(alone.choice()["token_ids"])
			if prompt == nil {
				prompt = alone.choice()["prompt_token_ids"]
			}
			next := object{"model": "sim", "return_token_ids": true, "prompt": append(ids(prompt), said[0]), "max_tokens": 4095}
			if body["ignore_eos"] != nil {
				next["ignore_eos"], next["max_tokens"] = true, 19
			}
			got := post(t, startInstance(t, c.change), wire.PathCompletions, next)
			if rest := ids(got.choice()["token_ids"]); !slices.Equal(rest, said[1:]) {
				t.Errorf("went on with %v, want %v", rest, said[1:])
			}
		})
	}
}

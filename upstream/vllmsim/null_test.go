package vllmsim

import (
	"strings"
	"testing"

	"carryover/upstream/vllmsim/bpe"
	"carryover/upstream/vllmsim/wire"
)

func TestParams_NullAndNot(t *testing.T) {
	asD := object{"anything": true}
	message := []any{user(longText)}
	for _, c := range []struct {
		name   string
		change func(*Config)
		path   string
		body   object
		null   bool
		finish string
	}{
		{name: "empty params", body: object{"kv_transfer_params": object{}}, null: true, finish: "length"},
		{name: "prefill without bidirectional", change: func(c *Config) { c.Bidirectional = false },
			body: object{"kv_transfer_params": prefillTemplate()}, finish: "length"},
		{name: "stop token", body: object{"kv_transfer_params": asD, "max_tokens": 200, "stop_token_ids": allWordTokens()}, finish: "stop"},
		{name: "stop string on the last token", body: object{"kv_transfer_params": prefillTemplate(), "max_tokens": 1, "stop": strings.Split(" ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz", "")}, finish: "stop"},
		{name: "beam search", body: object{"kv_transfer_params": asD, "use_beam_search": true}, null: true, finish: "length"},
		{name: "prompt of one token", path: wire.PathCompletions, body: object{"prompt": []int{300}, "kv_transfer_params": asD, "max_tokens": 1}, finish: "length"},
	} {
		t.Run(c.name, func(t *testing.T) {
			i := startInstance(t, c.change)
			path := c.path
			if path == "" {
				path = wire.PathChat
			}
			got := post(t, i, path, with(object{"model": "sim", "messages": message, "max_tokens": 4}, c.body))
			if _, there := got.body["kv_transfer_params"]; !there {
				t.Fatalf("no kv_transfer_params member: %s", got.raw)
			}
			if (got.params() == nil) != c.null {
				t.Errorf("params %v, want null %v", got.params(), c.null)
			}
			if finish := got.choice()["finish_reason"]; finish != c.finish {
				t.Errorf("finish_reason %v, want %s", finish, c.finish)
			}
			pins := 1
			if c.null {
				pins = 0
			}
			expect(t, i, counts{"Pins": pins, "Running": 0})
		})
	}
}

func allWordTokens() []int32 {
	var list []int32
	for id := int32(bpe.FirstMerge); id < bpe.VocabularySize; id++ {
		list = append(list, id)
	}
	return list
}

package vllmsim

import (
	"strings"
	"testing"

	"carryover/upstream/vllmsim/config"
)

// Where a template renders history otherwise than it was sampled, whole tickets are corrupt.
func TestTemplate_HistoryIsWhatWasSampledOrNot(t *testing.T) {
	tools := []any{object{"type": "function", "function": object{"name": "find", "parameters": object{"type": "object"}}}}
	for _, c := range []struct {
		template, orders string
		corrupt          int
	}{
		{TemplateThinkingPrompt, "", 1}, {TemplateTrim, "SAY  begins with a space. ", 1},
		{config.TemplateChatML, "THINK SAY all right. ", 0}, {TemplateStripReasoning, "THINK SAY all right. ", 1},
		{config.TemplateChatML, `CALL find {"q": "river", "n": 1} `, 0}, {config.TemplateChatML, `CALL find {"q":"river","n":1} `, 1},
	} {
		t.Run(c.template+c.orders, func(t *testing.T) {
			p, d := startPair(t, func(cfg *Config) { cfg.Template = c.template })
			messages := []any{user(c.orders + longText)}
			_, reply := turn(t, p, d, messages, nil, object{"tools": tools})
			said := reply.choice()["message"].(object)
			if think, call := strings.HasPrefix(c.orders, "THINK"), strings.HasPrefix(c.orders, "CALL"); think != (said["reasoning"] != nil) || call != (said["tool_calls"] != nil) {
				t.Fatalf("message %v after %q", said, c.orders)
			}
			turn(t, p, d, append(messages, said, user("And then?")), reply.params(), object{"tools": tools, "cache_salt": "s"})
			expect(t, p, counts{"CorruptReads": c.corrupt})
		})
	}
}

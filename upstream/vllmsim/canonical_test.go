package vllmsim

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"carryover/upstream/vllmsim/config"
)

// randomText mixes words, punctuation, line breaks and characters of several bytes.
func randomText(draw *rand.Rand, words int) string {
	pieces := []string{" river", "letters", " 42", "\n", "  ", "é", " 日本", "🎉", "!?", " it's", "\t", "{\"a\": 1}", ".", " a", "<b>", "morning "}
	text := ""
	for range words {
		text += pieces[draw.IntN(len(pieces))]
	}
	return text + "end"
}

// Whole tickets, handed over on every turn, are right.
func TestSampling_CanonicalRepliesReTokeniseIdentically(t *testing.T) {
	for _, template := range []string{config.TemplateChatML, TemplateStripReasoning} {
		t.Run(template, func(t *testing.T) {
			p, d := startPair(t, func(c *Config) { c.Template = template })
			const conversations, workers = 60, 8
			var wg sync.WaitGroup
			for w := range workers {
				wg.Go(func() {
					for seed := w; seed < conversations; seed += workers {
						converse(t, p, d, uint64(seed))
					}
				})
			}
			wg.Wait()
			assertClean(t, p, d)
			if s := p.Stats(); s.Loads < conversations || s.Pins != 0 || d.Stats().Pins != conversations {
				t.Errorf("prefill read %d tickets and has %d pins, decode %d; want at least %[4]d, 0, %[4]d", s.Loads, s.Pins, d.Stats().Pins, conversations)
			}
		})
	}
}

// converse runs three turns that hand the whole ticket over each time.
func converse(t *testing.T, p, d *Instance, seed uint64) {
	t.Helper()
	draw := rand.New(rand.NewPCG(seed, 1))
	messages := []any{object{"role": "system", "content": randomText(draw, 60)}}
	var ticket object
	for n := range 3 {
		messages = append(messages, user(randomText(draw, 20)))
		extra := object{"cache_salt": fmt.Sprintf("%d-%d", seed, n)} // keeps the engines' own caches out of it
		if draw.IntN(2) == 0 {
			extra["max_tokens"] = 2 + draw.IntN(30)
		}
		_, decode := turn(t, p, d, messages, ticket, extra)
		messages, ticket = append(messages, assistant(decode.text())), decode.params()
	}
}

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

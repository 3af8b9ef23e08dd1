package vllmsim

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"

	"carryover/upstream/vllmsim/wire"
)

// converse runs turns that hand the whole ticket over each time, and returns how many prefill legs carried one.
func converse(t *testing.T, p, d *Instance, seed uint64, turns int) (offered int) {
	t.Helper()
	draw := rand.New(rand.NewPCG(seed, 1))
	messages := []any{object{"role": "system", "content": randomText(draw, 60)}}
	var ticket object
	for n := range turns {
		messages = append(messages, user(randomText(draw, 20)))
		salt := fmt.Sprintf("%d-%d", seed, n) // keeps the engines' own caches out of it
		if ticket != nil {
			offered++
		}
		extra := object{"cache_salt": salt}
		if draw.IntN(2) == 0 {
			extra["max_tokens"] = 2 + draw.IntN(30)
		}
		_, decode := turn(t, p, d, messages, ticket, extra)
		messages = append(messages, assistant(decode.text()))
		ticket = decode.params()
	}
	return offered
}

// randomText mixes words, punctuation, line breaks and characters of several bytes.
func randomText(draw *rand.Rand, words int) string {
	pieces := []string{" river", "letters", " 42", "\n", "  ", "é", " 日本", "🎉", "!?", " it's", "\t", "{\"a\": 1}", ".", " a", "<b>", "morning "}
	text := ""
	for range words {
		text += pieces[draw.IntN(len(pieces))]
	}
	return text + "end"
}

func TestSampling_CanonicalRepliesReTokeniseIdentically(t *testing.T) {
	for _, template := range []string{TemplateChatML, TemplateStripReasoning} {
		t.Run(template, func(t *testing.T) {
			p, d := startPair(t, func(c *Config) { c.Template = template })
			const conversations, workers = 60, 8
			var wg sync.WaitGroup
			for w := range workers {
				wg.Go(func() {
					for seed := w; seed < conversations; seed += workers {
						converse(t, p, d, uint64(seed), 3)
					}
				})
			}
			wg.Wait()
			assertClean(t, p, d)
			s := p.Stats()
			if s.Loads < conversations {
				t.Errorf("prefill read %d tickets, want at least %d", s.Loads, conversations)
			}
			if s.Pins != 0 || d.Stats().Pins != conversations {
				t.Errorf("pins: prefill %d, decode %d; want 0, %d", s.Pins, d.Stats().Pins, conversations)
			}
		})
	}
}

// Where a template renders history otherwise than it was sampled, whole tickets are corrupt.
func TestTemplate_HistoryIsWhatWasSampledOrNot(t *testing.T) {
	for template, c := range map[string]struct {
		orders  string
		corrupt int
	}{
		TemplateThinkingPrompt: {"", 1}, TemplateTrim: {"SAY  begins with a space. ", 1},
		TemplateChatML: {"THINK SAY all right. ", 0}, TemplateStripReasoning: {"THINK SAY all right. ", 1},
	} {
		t.Run(template, func(t *testing.T) {
			p, d := startPair(t, func(c *Config) { c.Template = template })
			messages := []any{user(c.orders + longText)}
			_, reply := turn(t, p, d, messages, nil, nil)
			said := reply.choice()["message"].(object)
			if strings.HasPrefix(c.orders, "THINK") && (said["reasoning"] == nil || said["content"] != "all right. "+longText) {
				t.Fatalf("message %v, want reasoning and the text", said)
			}
			next := append(messages, object{"role": "assistant", "reasoning": said["reasoning"], "content": said["content"]}, user("And then?"))
			turn(t, p, d, next, reply.params(), object{"cache_salt": "s"})
			expect(t, p, counts{"CorruptReads": c.corrupt})
		})
	}
}

func TestTemplate_ToolCallsReTokeniseInCanonicalFormOnly(t *testing.T) {
	tools := []any{object{"type": "function", "function": object{"name": "find", "parameters": object{"type": "object"}}}}
	for arguments, corrupt := range map[string]int{`{"q": "river", "n": 1}`: 0, `{"q":"river","n":1}`: 1} {
		t.Run(arguments, func(t *testing.T) {
			p, d := startPair(t, nil)
			messages := []any{user(longText + " CALL find " + arguments)}
			_, reply := turn(t, p, d, messages, nil, object{"tools": tools})
			calls, _ := reply.choice()["message"].(object)["tool_calls"].([]any)
			if len(calls) != 1 || reply.choice()["finish_reason"] != "tool_calls" {
				t.Fatalf("answer %s, want one call and finish_reason tool_calls", reply.raw)
			}
			if got := calls[0].(object)["function"].(object)["arguments"]; got != `{"q": "river", "n": 1}` {
				t.Errorf("arguments %v, want those of json.dumps", got)
			}
			next := append(messages, object{"role": "assistant", "content": nil, "tool_calls": calls},
				object{"role": "tool", "tool_call_id": "x", "content": "found"})
			_, last := turn(t, p, d, next, reply.params(), object{"tools": tools, "cache_salt": "s"})
			expect(t, p, counts{"CorruptReads": corrupt})
			if last.status != http.StatusOK || corrupt == 0 && last.choice()["finish_reason"] == "tool_calls" {
				t.Errorf("behind the tool's answer: %s, want words", last.raw)
			}
		})
	}
}

func TestReply_Scripts(t *testing.T) {
	i := startInstance(t, nil)
	ask := func(text string) string {
		return chat(t, i, asking(text)).text()
	}
	if got := ask("SAY naïve 日本 🎉"); got != "naïve 日本 🎉" {
		t.Errorf("said %q", got)
	}
	if a, b := ask("Tell me."), ask("Tell me."); a != b {
		t.Errorf("the same question gives %q and %q", a, b)
	}
	if a, b := ask("Tell me."), ask("Tell us."); a == b {
		t.Errorf("different questions both give %q", a)
	}
	got := post(t, i, wire.PathCompletions, object{"model": "sim", "prompt": "SAY text", "max_tokens": 20})
	if got.text() != "text" {
		t.Errorf("text completion said %q, want %q", got.text(), "text")
	}
	other := startInstance(t, func(c *Config) { c.Seed = 7 })
	a := ask("Tell me.")
	if b := chat(t, other, asking("Tell me.")).text(); a == b {
		t.Errorf("other weights give the same %q", a)
	}
}

func TestReply_ResultOfAToolOrdersTheNextCall(t *testing.T) {
	i := startInstance(t, nil)
	messages := []any{user(`CALL read {"n": 1}`)}
	for n, result := range []string{`a line. CALL read {"n": 2}`, "SAY nothing else", ""} {
		got := chat(t, i, object{"model": "sim", "messages": messages, "tools": []any{object{"type": "function", "function": object{"name": "read"}}}})
		if called := got.choice()["finish_reason"] == "tool_calls"; called != (n < 2) {
			t.Errorf("answer %d: %s", n, got.raw)
		}
		messages = append(messages, got.choice()["message"], object{"role": "tool", "tool_call_id": "x", "content": result})
	}
}

func TestReply_NaturalLength(t *testing.T) {
	i := startInstance(t, nil)
	for n := range 20 {
		got := chat(t, i, asking(fmt.Sprint("Question ", n)))
		tokens := got.body["usage"].(object)["completion_tokens"].(float64)
		if tokens < 30 || tokens > 62 || got.choice()["finish_reason"] != "stop" {
			t.Errorf("question %d: %v tokens, finish_reason %v; want 30 to 62 and stop", n, tokens, got.choice()["finish_reason"])
		}
	}
}

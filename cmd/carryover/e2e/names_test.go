package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"carryover/cmd/carryover/testrig"
	"carryover/convcache/redistest"
	"carryover/upstream/vllmsim"
)

// plainTalk is one conversation of any API, in its plainest form.
type plainTalk struct {
	path, prompt string
	history      []any
}

// next makes the request of the next turn.
func (k *plainTalk) next(text string, stream bool) map[string]any {
	body := map[string]any{"model": "sim", "temperature": 0, "stream": stream, "max_tokens": 80}
	k.prompt += text
	k.history = append(k.history, map[string]any{"role": "user", "content": text})
	switch k.path {
	case "/v1/completions":
		body["prompt"] = k.prompt
	case pathResponses:
		body["input"], body["store"] = k.history, false
		delete(body, "max_tokens")
		body["max_output_tokens"] = 80
	default:
		body["messages"] = k.history
	}
	return body
}

// heard repeats an answer as history.
func (k *plainTalk) heard(a *agentAnswer) {
	text := a.content
	for _, part := range a.parts {
		if said, ok := part["text"].(string); ok {
			text += said
		}
		if items, ok := part["content"].([]any); ok {
			text += items[0].(map[string]any)["text"].(string)
		}
	}
	k.prompt += text
	k.history = append(k.history, map[string]any{"role": "assistant", "content": text})
}

// Ids that never repeat, and one for all conversations, find as much as none: with all APIs and stores.
func TestNames_ThatAreOfNoUseHideNothing(t *testing.T) {
	ids := map[string]func(i, turn int) string{
		"fresh":                  func(i, turn int) string { return fmt.Sprintf("%d-%d", i, turn) },
		"shared":                 func(int, int) string { return "app" },
		"new at the third turn":  func(i, turn int) string { return fmt.Sprintf("%d-%d", i, turn/2) },
		"new at the fourth turn": func(i, turn int) string { return fmt.Sprintf("%d-%d", i, turn/3) },
	}
	for _, path := range []string{"/v1/chat/completions", "/v1/completions", pathMessages, pathResponses} {
		for way, id := range ids {
			for _, redis := range []bool{false, true} {
				if redis && path != "/v1/chat/completions" {
					continue // a store knows no API
				}
				t.Run(fmt.Sprintf("%s/%s/redis %t", path[len("/v1/"):], way, redis), func(t *testing.T) {
					t.Parallel()
					cfg := vllmsim.DefaultConfig()
					cfg.Render, cfg.OutputTokenIDs, cfg.MessageParams = true, true, true
					c := rigConfig{cfg: cfg, flags: append([]string{"--store-timeout", "5s"}, byContent...)}
					if redis {
						c.flags, c.env = append(c.flags, "--redis-url", "redis://"+redistest.Start(t).Addr()), []string{testrig.ReplicaSecret}
					}
					r := startRig(t, c)
					talks := make([]*plainTalk, 13)
					for i := range talks {
						talks[i] = &plainTalk{path: path}
					}
					ask := func(i, turn int, id string) string {
						text := longText(10*i + turn)
						if i >= 7 && turn == 0 {
							text = longText(70) // they begin alike
						}
						a, err := r.askAgent(t.Context(), path, http.Header{"X-Session-Id": {id}}, talks[i].next(text, (i+turn)%2 == 0))
						if err != nil || a.status != http.StatusOK {
							t.Fatalf("%v: %d %s", err, a.status, a.raw)
						}
						talks[i].heard(a)
						return a.reuse()
					}
					for turn := range 3 { // the shapes of requests are learnt, and the pair is tried
						ask(6, turn, "learning")
					}
					for turn := range 4 {
						for i := range 6 {
							if reuse := ask(i, turn, id(i, turn)); turn > 0 && !strings.HasPrefix(reuse, "hit;") {
								t.Errorf("conversation %d, turn %d: %s, want a hit", i, turn, reuse)
							}
						}
					}
					if way == "fresh" && path == "/v1/chat/completions" { // what others have left that began alike hides nothing
						for i := 7; i < len(talks); i++ {
							talks[i].history = []any{map[string]any{"role": "system", "content": longText(200 + i)}}
							ask(i, 0, id(i, 0))
							if i > 7 {
								ask(i, 1, id(i, 1))
							}
						}
						if reuse := ask(7, 1, "7-1"); !strings.HasPrefix(reuse, "hit;") {
							t.Errorf("behind others that began alike: %s, want a hit", reuse)
						}
					}
					r.verifyReads(t, 0)
				})
			}
		}
	}
}

package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"carryover/upstream/vllmsim"
)

// startUnnamed starts a pair whose tickets stay in the store until a turn uses them.
func startUnnamed(t *testing.T, flags ...string) *rig {
	t.Helper()
	cfg := vllmsim.DefaultConfig()
	cfg.Render, cfg.OutputTokenIDs = true, true
	return startRig(t, rigConfig{
		cfg:   cfg,
		flags: append([]string{"--hand-back", "off", "--conversation-by-content", "on", "--teach-shapes", "off"}, flags...),
	})
}

// unnamed sends a request and returns its answer once its ticket is stored.
func (r *rig) unnamed(t *testing.T, path, id string, body map[string]any) *answered {
	t.Helper()
	body["model"], body["temperature"], body["stream"] = "sim", 0, true
	a, err := r.post(t.Context(), path, http.Header{"X-Request-Id": {id}}, encode(body), unwatched)
	if err != nil || a.status != http.StatusOK {
		t.Fatalf("%s: %v: %.600s", id, err, a.raw)
	}
	r.turns.await(t, id)
	return a
}

// Seven chats begin alike, so that their tickets share one key, which keeps four. Those whose tickets are gone leave the others theirs.
func TestByContent_ChatsThatBeginAlikeLeaveEachOtherTheirTickets(t *testing.T) {
	const chats, kept = 7, 4
	r := startUnnamed(t)
	opening := question("SAY " + longText(1))
	system := func(name string) json.RawMessage {
		message, _ := json.Marshal(map[string]string{"role": "system", "content": strings.Repeat(longText(9)+" ", 4) + "The user is " + name + "."})
		return message
	}
	learn := []json.RawMessage{system("nobody"), question("SAY " + longText(5))}
	for i := range 3 { // the shape of a second turn, and the pair's trial
		a := r.unnamed(t, "/v1/chat/completions", fmt.Sprintf("learning-%d", i), map[string]any{"messages": learn, "max_tokens": 60})
		learn = append(learn, a.assistant(), question("SAY "+longText(6+i)))
	}
	histories := make([][]json.RawMessage, chats)
	for i := range histories {
		mine := system(fmt.Sprintf("number %d", i))
		a := r.unnamed(t, "/v1/chat/completions", fmt.Sprintf("opening-%d", i), map[string]any{"messages": []json.RawMessage{mine, opening}, "max_tokens": 100})
		histories[i] = []json.RawMessage{mine, opening, a.assistant(), question("SAY " + longText(20+i))}
	}
	var reuses []string
	hits := 0
	for i, h := range histories {
		a := r.unnamed(t, "/v1/chat/completions", fmt.Sprintf("second-%d", i), map[string]any{"messages": h, "max_tokens": 20})
		reuses = append(reuses, a.reuse())
		own := strings.HasPrefix(a.reuse(), "hit;") && !strings.Contains(a.reuse(), ";read=0;")
		if own {
			hits++
		}
		if i >= chats-kept && !own {
			t.Errorf("chat %d has lost its ticket: %s", i, a.reuse())
		}
	}
	if hits != kept {
		t.Errorf("%d second turns read their own answer from decode, want %d: %q", hits, kept, reuses)
	}
	r.verifyReads(t, 0)
}

// Completions that share a template and no history are no conversation: none takes the ticket of another, and none is a hit.
func TestByContent_CompletionsOfATemplateLeaveEachOtherTheirTickets(t *testing.T) {
	r := startUnnamed(t)
	template := strings.Repeat(longText(3)+" ", 12)[:2370] // the largest anchor of these prompts, of 2,048 bytes, is within it
	var last *answered
	for i := range 6 {
		a := r.unnamed(t, "/v1/completions", fmt.Sprintf("templated-%d", i), map[string]any{"prompt": fmt.Sprintf("%sNumber %d, %.80s", template, i, longText(40+i)), "max_tokens": 40})
		if strings.HasPrefix(a.reuse(), "hit;") {
			t.Errorf("request %d: %s", i, a.reuse())
		}
		last = a
	}
	prompt := fmt.Sprintf("%sNumber %d, %.80s", template, 5, longText(45)) + last.content + " And then? "
	if a := r.unnamed(t, "/v1/completions", "continued", map[string]any{"prompt": prompt, "max_tokens": 20}); !strings.HasPrefix(a.reuse(), "hit;") {
		t.Errorf("a completion that is continued: %s", a.reuse())
	}
	r.verifyReads(t, 0)
}

// Where decode serves what it has by itself, the ticket of another chat with the same words does not make it compute a long prompt.
func TestByContent_TheTicketOfAnotherSaysNothingOfWhatDecodeHas(t *testing.T) {
	r := startUnnamed(t, "--disagg-threshold", "64")
	chat := func(n int) []json.RawMessage {
		system, _ := json.Marshal(map[string]string{"role": "system", "content": strings.Repeat(longText(n)+" ", 8)})
		return []json.RawMessage{system, question("Summarise this.")}
	}
	r.unnamed(t, "/v1/chat/completions", "first", map[string]any{"messages": chat(1), "max_tokens": 60})
	said, _ := json.Marshal(map[string]string{"role": "assistant", "content": "It was short."})
	other := append(chat(2), said, question("More."))
	if a := r.unnamed(t, "/v1/chat/completions", "second", map[string]any{"messages": other, "max_tokens": 20}); !strings.HasPrefix(a.header.Get("X-KV-Path"), "prefill_decode") {
		t.Errorf("decode computes another's prompt: %s, %s", a.header.Get("X-KV-Path"), a.reuse())
	}
	r.verifyReads(t, 0)
}

package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// Completions that share a template and no history are no conversation: none takes the ticket of another, and none is a hit.
func TestByContent_CompletionsOfATemplateLeaveEachOtherTheirTickets(t *testing.T) {
	r := startRig(t, rigConfig{
		flags: []string{"--conversation-by-content", "on", "--teach-shapes", "off"}, cfg: engineWith(`{"output_token_ids":true}`),
	})
	template := strings.Repeat(longText(3)+" ", 12)[:2370] // the largest anchor of these prompts, of 2,048 bytes, is within it
	ask := func(prompt string) *answered {
		a := r.say(t, object{"model": "sim", "temperature": 0, "stream": true, "prompt": prompt, "max_tokens": 40})
		if r.turns.await(t, a.header.Get("X-Request-Id")); a.status != http.StatusOK {
			t.Fatalf("%.600s", a.raw)
		}
		return a
	}
	prompt, last := "", &answered{}
	for i := range 6 {
		prompt = fmt.Sprintf("%sNumber %d, %.80s", template, i, longText(40+i))
		if last = ask(prompt); last.hit() {
			t.Errorf("request %d: %s", i, last.reuse())
		}
	}
	if a := ask(prompt + last.content + " And then? "); !a.hit() {
		t.Errorf("a completion that is continued: %s", a.reuse())
	}
	r.verifyReads(t)
}

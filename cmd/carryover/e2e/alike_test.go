package e2e

import (
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
func (r *rig) unnamed(t *testing.T, path, id string, body object) *answered {
	t.Helper()
	body["model"], body["temperature"], body["stream"] = "sim", 0, true
	a, err := r.post(t.Context(), path, http.Header{"X-Request-Id": {id}}, encode(body), unwatched)
	if err != nil || a.status != http.StatusOK {
		t.Fatalf("%s: %v: %.600s", id, err, a.raw)
	}
	r.turns.await(t, id)
	return a
}

// Completions that share a template and no history are no conversation: none takes the ticket of another, and none is a hit.
func TestByContent_CompletionsOfATemplateLeaveEachOtherTheirTickets(t *testing.T) {
	r := startUnnamed(t)
	template := strings.Repeat(longText(3)+" ", 12)[:2370] // the largest anchor of these prompts, of 2,048 bytes, is within it
	var last *answered
	for i := range 6 {
		a := r.unnamed(t, "/v1/completions", fmt.Sprintf("templated-%d", i), object{"prompt": fmt.Sprintf("%sNumber %d, %.80s", template, i, longText(40+i)), "max_tokens": 40})
		if a.hit() {
			t.Errorf("request %d: %s", i, a.reuse())
		}
		last = a
	}
	prompt := fmt.Sprintf("%sNumber %d, %.80s", template, 5, longText(45)) + last.content + " And then? "
	if a := r.unnamed(t, "/v1/completions", "continued", object{"prompt": prompt, "max_tokens": 20}); !a.hit() {
		t.Errorf("a completion that is continued: %s", a.reuse())
	}
	r.verifyReads(t)
}

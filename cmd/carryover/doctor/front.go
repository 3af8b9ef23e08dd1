package doctor

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"carryover/cmd/carryover/command"
	"carryover/server/record"
)

const (
	frontTokens = 64
	// slowEnough is how long a stream takes at least for buffering to show: proxies wait less for more.
	slowEnough = 100 * time.Millisecond
	// sharedOut is the divisor of the waits between events that must remain. The time from first to last could also come from a busy reader.
	sharedOut = 4
)

func (d *doctor) measured(p command.Pace) {
	d.report.mu.Lock()
	defer d.report.mu.Unlock()
	if p.Spread > d.pace.Spread {
		d.pace = p
	}
}

// front examines the proxy in front by a request for two choices: it goes to decode alone and leaves no ticket, but shows whether its
// conversation was found. The prompt is too short to name a conversation (body.Prompt.Content).
func (d *doctor) front(ctx context.Context) {
	r, at, address := d.report, "front "+d.options.through, []string{"{url}", d.options.through}
	r.place(at)
	i := slices.IndexFunc(d.decode, func(e *examined) bool { return e.models != nil })
	if i < 0 {
		r.found(at, codeFrontDown, "no decode instance lists a model to ask for", address...)
		return
	}
	body, _ := json.Marshal(map[string]any{ // strings and numbers only
		"model": d.decode[i].models[0], "stream": true, "max_tokens": frontTokens, "min_tokens": frontTokens, "temperature": 1, "n": 2,
		"prompt": "Describe an archive in a few sentences.",
	})
	answer, err := command.Complete(ctx, newProbeClient(), d.options.through+"/v1/completions", body, http.Header{"X-Conversation-Id": {"doctor-" + rand.Text()}})
	what := ""
	switch {
	case err != nil:
		what = err.Error()
	case answer.Status != http.StatusOK:
		what = fmt.Sprintf("a turn was answered with %d", answer.Status)
	}
	if !r.check(at, codeFrontDown, what, address...) {
		return
	}
	var lost []string
	for _, name := range []string{"X-KV-Reuse", "X-KV-Path", "X-Request-Id"} {
		if answer.Header.Get(name) == "" {
			lost = append(lost, name)
		}
	}
	if len(lost) > 0 {
		what = "answers lack " + strings.Join(lost, ", ")
	}
	if r.check(at, codeFrontForeign, what, address...) {
		if strings.Contains(answer.Header.Get("X-KV-Reuse"), record.ReasonNoConversation) {
			what = "a turn that X-Conversation-Id names has no conversation"
		}
		r.check(at, codeFrontID, what, address...)
	}
	d.buffers(at, answer.Pace)
}

func (d *doctor) buffers(at string, through command.Pace) {
	what, past := "", d.pace.Spread*frontTokens/probeAnswer
	if past < slowEnough {
		d.report.note("Whether a proxy buffers is unknown: the engines answer too fast, or no pair was tried.")
		return
	}
	if through.Waits*sharedOut < d.pace.Waits*frontTokens/probeAnswer {
		what = fmt.Sprintf("%d events came within %s; without the proxy they take %s", through.Events,
			through.Spread.Round(time.Millisecond), past.Round(time.Millisecond))
	}
	d.report.check(at, codeFrontBuffers, what)
}

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

// tell notes the turns of a pair, and the pace of its stream if that was answered.
func (d *doctor) tell(t *tried) {
	r := d.report
	r.mu.Lock()
	defer r.mu.Unlock()
	r.probed++
	r.requests += len(t.turns)
	if second := t.turn(true, true); second != nil && second.record.Status == http.StatusOK {
		if p := t.turn(true, false).pace; p.Spread > d.pace.Spread {
			d.pace = p
		}
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
	if r.check(at, codeFrontForeign, problem(lost == nil, "answers lack %s", strings.Join(lost, ", ")), address...) {
		r.check(at, codeFrontID, problem(!strings.Contains(answer.Header.Get("X-KV-Reuse"), record.ReasonNoConversation),
			"a turn that X-Conversation-Id names has no conversation"), address...)
	}
	d.buffers(at, answer.Pace)
}

func (d *doctor) buffers(at string, through command.Pace) {
	past := d.pace.Spread * frontTokens / probeAnswer
	if past < slowEnough {
		d.report.note("Whether a proxy buffers is unknown: the engines answer too fast, or no pair was tried.")
		return
	}
	d.report.check(at, codeFrontBuffers, problem(through.Waits*sharedOut >= d.pace.Waits*frontTokens/probeAnswer,
		"%d events came within %s; without the proxy they take %s", through.Events, through.Spread.Round(time.Millisecond), past.Round(time.Millisecond)))
}

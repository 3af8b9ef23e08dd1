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

	"carryover/server/record"
)

// How a stream through a proxy is compared with one past it.
const (
	frontTokens = 64
	// slowEnough is how long a stream has to take for buffering to show: proxies wait less for more.
	slowEnough = 100 * time.Millisecond
	// sharedOut is the part of the time between first and last event that has to be left.
	sharedOut = 4
)

// measured keeps the pace of the slowest stream.
func (d *doctor) measured(p pace) {
	d.report.mu.Lock()
	defer d.report.mu.Unlock()
	if p.spread > d.pace.spread {
		d.pace = p
	}
}

// front is what stands between clients and Carryover.
type front struct {
	at, url string
	model   string
	past    pace // of the slowest stream past it
	report  *doctorReport
}

// front examines what stands between clients and Carryover, with requests for two choices: these go to decode alone and leave
// nothing, and show all the same whether their conversation was found.
func (d *doctor) front(ctx context.Context) {
	f := front{"front " + d.options.through, d.options.through, d.anyModel(), d.pace, d.report}
	f.report.place(f.at)
	if f.model == "" {
		f.report.found(f.at, codeFrontDown, "no instance lists a model to ask for", "{url}", f.url)
		return
	}
	f.examine(ctx, slices.Contains(d.cfg.Conversation.Sources, "client_headers"))
}

// examine sends the two requests. underscores says that a header with an underscore may name a conversation.
func (f *front) examine(ctx context.Context, underscores bool) {
	at, r, details := f.at, f.report, []string{"{url}", f.url}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, Proxy: nil}}
	streamed, err := send(ctx, client, f.url+textPath, f.body(frontTokens, true), http.Header{"X-Conversation-Id": {"doctor-" + rand.Text()}})
	if why := refusedThrough(streamed, err); why != "" {
		r.found(at, codeFrontDown, why, details...)
		return
	}
	r.holds(at, codeFrontDown, "")
	what := ""
	if lost := missingHeaders(streamed.header); len(lost) > 0 {
		what = "answers lack " + strings.Join(lost, ", ")
	}
	headers := r.check(at, codeFrontForeign, what, details...)
	f.buffers(streamed.pace)
	if !headers {
		return // whether ids came through is told by them
	}
	named := func(code, header string, found bool) {
		what := ""
		if !found {
			what = "a turn that " + header + " names has no conversation"
		}
		r.check(at, code, what, details...)
	}
	named(codeFrontID, "X-Conversation-Id", known(streamed))
	// net/http would send Session_id; proxies that drop underscores drop it alike.
	second, err := send(ctx, client, f.url+textPath, f.body(1, false), http.Header{"session_id": {"doctor-" + rand.Text()}})
	if why := refusedThrough(second, err); why != "" {
		r.found(at, codeFrontDown, why, details...)
		return
	}
	if underscores {
		named(codeFrontUnderscores, "session_id", known(second))
	}
}

// anyModel is one that an instance serves.
func (d *doctor) anyModel() string {
	for _, e := range append(slices.Clone(d.decode), d.prefill...) {
		if len(e.models) > 0 {
			return e.models[0]
		}
	}
	return ""
}

// body is a request whose content does not name its conversation: the prompt is too short for that (body.Prompt.Content).
func (f *front) body(tokens int, stream bool) []byte {
	fields := map[string]any{
		"model": f.model, "stream": stream, "max_tokens": tokens, "min_tokens": tokens, "temperature": 1, "n": 2,
		"prompt": "Describe an archive in a few sentences.",
	}
	body, _ := json.Marshal(fields) // of strings and numbers
	return body
}

// refusedThrough returns why a turn did not get through, "" if it did.
func refusedThrough(answer probeAnswered, err error) string {
	switch {
	case err != nil:
		return err.Error()
	case answer.status != http.StatusOK:
		return fmt.Sprintf("a turn was answered with %d", answer.status)
	}
	return ""
}

// missingHeaders returns the headers of Carryover that an answer lacks.
func missingHeaders(h http.Header) (lost []string) {
	for _, name := range []string{"X-KV-Reuse", "X-KV-Path", "X-Request-Id"} {
		if h.Get(name) == "" {
			lost = append(lost, name)
		}
	}
	return lost
}

// known reports whether a turn had a conversation.
func known(answer probeAnswered) bool {
	return !strings.Contains(answer.header.Get("X-KV-Reuse"), string(record.ReasonNoConversation))
}

// buffers compares the pace of events through the proxy with their pace past it.
func (f *front) buffers(through pace) {
	at, r, past := f.at, f.report, f.past
	past.spread = past.spread * frontTokens / probeAnswer
	switch {
	case past.spread < slowEnough:
		r.note("Whether a proxy buffers was not seen: the engines answer too fast, or no pair was tried.")
	case through.events < 2 || through.spread < past.spread/sharedOut:
		r.found(at, codeFrontBuffers, fmt.Sprintf("%d events came within %s; past the proxy they take %s", through.events,
			through.spread.Round(time.Millisecond), past.spread.Round(time.Millisecond)))
	default:
		r.holds(at, codeFrontBuffers, "")
	}
}

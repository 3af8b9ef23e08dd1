package server

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"carryover/upstream"
	"carryover/upstream/body"
)

// turnHeaders sets the headers that tell a client or an operator what a turn reused.
func turnHeaders(header http.Header, r *Record) {
	// All values share one string and one array, which saves allocations. The names are spelled as net/http spells them, except X-KV-…,
	// which net/http would change to X-Kv-….
	b := r.Reuse.appendHeader(make([]byte, 0, 256), time.Now())
	reuse := len(b)
	b = appendTiming(b, r)
	timing := len(b)
	b = r.Path.appendHeader(b)
	headers := string(b)
	values := [...]string{r.Turn, headers[:reuse], headers[reuse:timing], headers[timing:]}
	header["X-Request-Id"], header["X-KV-Reuse"], header["Server-Timing"] = values[0:1:1], values[1:2:2], values[2:3:3]
	if r.API == body.Messages { // the header that Anthropic's SDKs read
		header["Request-Id"] = values[0:1:1]
	}
	if values[3] != "" {
		header["X-KV-Path"] = values[3:4:4]
	}
}

// appendTiming appends how long the turn took so far (W3C Server Timing).
func appendTiming(b []byte, r *Record) []byte {
	begin := len(b)
	add := func(name string, d time.Duration) {
		if len(b) > begin {
			b = append(b, ", "...)
		}
		b = strconv.AppendFloat(append(append(b, name...), ";dur="...), Milliseconds(d), 'f', 1, 64)
	}
	if r.Queued > 0 {
		add("queue", r.Queued)
	}
	add("lookup", r.Lookup)
	if r.Leg(upstream.RolePrefill).Instance != "" {
		add("prefill", r.PrefillTook())
	}
	if r.TTFT > 0 {
		add("ttft", r.TTFT)
	}
	return b
}

// account learns from a turn that has ended, and passes its record to the observers.
func (s *Server) account(t *turn, err error) {
	t.record.Took, t.record.Err = time.Since(t.record.Began), err
	if t.record.Path.Way == WayDecodeOnly && t.record.Status == http.StatusOK {
		s.turns.ratios.learn(t, t.record.Answer.PromptTokens) // on the other ways prefill's answer has given the number
	}
	t.record.Unserved = t.record.Model != "" && !s.deps.Fleet.Serves(t.record.Model)
	t.record.Answer.Finish = clip(t.record.Answer.Finish)
	for _, observe := range s.observers {
		observe(&t.record)
	}
}

// Blamed returns the instance whose leg failed the turn, and the kind of failure as [upstream.Kind] names it; both are "" if no leg failed
// it.
func (r *Record) Blamed() (instance, kind string) {
	if r.Err == nil {
		return "", ""
	}
	var failed *upstream.LegError
	if errors.As(r.Err, &failed) {
		return failed.Instance, failed.Kind.String()
	}
	return "", ""
}

// ModelShown returns the model's name as operators see it: "other" for a name that no engine is known to serve. Such a name is the client's
// own text, and may be as long as a body.
func (a *Asked) ModelShown() string {
	if a.Unserved {
		return "other"
	}
	return a.Model
}

// maxFinish bounds a finish_reason, which is text from an engine. Those of vLLM have at most fourteen bytes.
const maxFinish = 64

// clip returns a copy. The text that it is given is part of the whole answer, which observers would otherwise keep in memory.
func clip(finish string) string {
	if len(finish) > maxFinish {
		finish = strings.ToValidUTF8(finish[:maxFinish], "")
	}
	return strings.Clone(finish)
}

// Milliseconds returns a time as operators read it, rounded to tenths of a millisecond.
func Milliseconds(d time.Duration) float64 {
	return float64(d.Round(100*time.Microsecond)) / float64(time.Millisecond)
}

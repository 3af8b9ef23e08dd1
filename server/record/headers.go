package record

import (
	"net/http"
	"strconv"
	"time"

	"carryover/upstream"
	"carryover/upstream/body"
)

// setHeaders sets the headers that tell a client or an operator what a turn reused.
func setHeaders(header http.Header, r *Turn) {
	// The names are spelled as net/http spells them, except X-KV-…, which net/http would change to X-Kv-….
	header["X-Request-Id"] = []string{r.Turn}
	if r.API == body.Messages { // the header that Anthropic's SDKs read
		header["Request-Id"] = []string{r.Turn}
	}
	header["X-KV-Reuse"] = []string{r.Reuse.Header(time.Now())}
	header["Server-Timing"] = []string{timing(r)}
	if path := r.Path.Header(); path != "" {
		header["X-KV-Path"] = []string{path}
	}
}

// timing is how long the turn took so far (W3C Server Timing).
func timing(r *Turn) string {
	b := make([]byte, 0, 96)
	add := func(name string, d time.Duration) {
		if len(b) > 0 {
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
	if r.Whole > 0 {
		add("answer", r.Whole)
	}
	return string(b)
}

// Milliseconds returns a time as operators read it, rounded to tenths of a millisecond.
func Milliseconds(d time.Duration) float64 {
	return float64(d.Round(100*time.Microsecond)) / float64(time.Millisecond)
}

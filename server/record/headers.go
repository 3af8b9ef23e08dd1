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
func appendTiming(b []byte, r *Turn) []byte {
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
	if r.Whole > 0 {
		add("answer", r.Whole)
	}
	return b
}

// Milliseconds returns a time as operators read it, rounded to tenths of a millisecond.
func Milliseconds(d time.Duration) float64 {
	return float64(d.Round(100*time.Microsecond)) / float64(time.Millisecond)
}

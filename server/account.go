package server

import (
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"carryover/upstream"
)

// receipt is what a turn did, for its headers and its one log line.
type receipt struct {
	status   int
	hit      bool      // a ticket was reused
	offered  int       // how many of its tokens
	caughtUp time.Time // what its age counts from
	reason   Reason    // why nothing was reused
	cached   int       // prompt tokens that prefill took from caches, -1 unknown
	stored   string    // "yes", or why no ticket was kept
	prefill  string
	decode   string
	legs     int
	retries  int
	events   int64
	bytes    int64

	buffered bool // the stream was made of a whole answer

	lookup, prefillTook, ttft time.Duration
}

// turnHeaders sets the headers by which a client or an operator sees what a turn
// reused.
func (s *Server) turnHeaders(header http.Header, t *turn) {
	header.Set("X-Request-Id", t.id)
	header["X-KV-Reuse"] = []string{t.reuse()} // net/http would spell it X-Kv-Reuse
	r := &t.receipt
	timing := []string{fmt.Sprintf("lookup;dur=%.1f", milliseconds(r.lookup))}
	if r.prefill != "" {
		timing = append(timing, fmt.Sprintf("prefill;dur=%.1f", milliseconds(r.prefillTook)))
	}
	if r.ttft > 0 {
		timing = append(timing, fmt.Sprintf("ttft;dur=%.1f", milliseconds(r.ttft)))
	}
	header.Set("Server-Timing", strings.Join(timing, ", "))
}

// reuse is the value of X-KV-Reuse.
func (t *turn) reuse() string {
	r := &t.receipt
	switch {
	case t.conversation.off:
		return "off"
	case !r.hit && r.reason == "":
		return "miss;reason=" + string(ReasonBypass)
	case !r.hit:
		return "miss;reason=" + string(r.reason)
	}
	age := max(0, upstream.Elapsed(r.caughtUp, time.Now()))
	s := fmt.Sprintf("hit;tokens=%d;age=%.1f;proof=%s", r.offered, age.Seconds(), t.proof.name())
	if r.cached >= 0 {
		s += fmt.Sprintf(";confirmed=%d", r.cached)
	}
	return s
}

// account writes the turn's line. Prompts, ids in clear and block lists never
// appear; the conversation is shown by the first bytes of its keyed hash.
func (s *Server) account(t *turn, err error) {
	r := &t.receipt
	level := slog.LevelInfo
	attrs := []any{
		"turn", t.id, "path", t.api.Path(), "conversation", t.shortConversation(),
		"prefill", r.prefill, "decode", r.decode, "reuse", t.reuse(), "stored", r.stored,
		"status", r.status, "legs", r.legs, "retries", r.retries, "events", r.events, "bytes", r.bytes,
		"prefill_ms", milliseconds(r.prefillTook), "ttft_ms", milliseconds(r.ttft), "duration_ms", milliseconds(time.Since(t.began)),
	}
	if s.deps.RedisState != nil { // tells a ticket that replicas share from one that is kept here
		attrs = append(attrs, "redis", s.deps.RedisState())
	}
	if r.buffered {
		attrs = append(attrs, "stream", "buffered")
	}
	if err != nil {
		attrs = append(attrs, "error", err)
		if r.status >= 500 || isAbort(err) {
			level = slog.LevelWarn
		}
	}
	s.cfg.Logger.Log(s.background, level, "turn", attrs...)
}

func (t *turn) shortConversation() string {
	if !t.conversation.known {
		return ""
	}
	return t.conversation.key.Short()
}

func milliseconds(d time.Duration) float64 {
	return float64(d.Round(100*time.Microsecond)) / float64(time.Millisecond)
}

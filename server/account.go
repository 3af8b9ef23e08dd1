package server

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"carryover/upstream"
)

// turnHeaders sets the headers by which a client or an operator sees what a turn
// reused.
func turnHeaders(header http.Header, r *Record) {
	header.Set("X-Request-Id", r.Turn)
	header["X-KV-Reuse"] = []string{r.Reuse.Header(time.Now())} // net/http would spell it X-Kv-Reuse
	if path := r.Path.Header(); path != "" {
		header["X-KV-Path"] = []string{path}
	}
	var timing []string
	if r.Queued > 0 {
		timing = append(timing, fmt.Sprintf("queue;dur=%.1f", milliseconds(r.Queued)))
	}
	timing = append(timing, fmt.Sprintf("lookup;dur=%.1f", milliseconds(r.Lookup)))
	if r.Leg(upstream.RolePrefill).Instance != "" {
		timing = append(timing, fmt.Sprintf("prefill;dur=%.1f", milliseconds(r.PrefillTook())))
	}
	if r.TTFT > 0 {
		timing = append(timing, fmt.Sprintf("ttft;dur=%.1f", milliseconds(r.TTFT)))
	}
	header.Set("Server-Timing", strings.Join(timing, ", "))
}

// account learns from a turn that has ended, and hands the record of a turn to its observers.
func (s *Server) account(t *turn, err error) {
	t.record.Took, t.record.Err = time.Since(t.record.Began), err
	if t.record.Path.Way == WayDecodeOnly && t.record.Status == http.StatusOK {
		s.turns.ratios.learn(t, t.record.Answer.PromptTokens) // else prefill's answer has told
	}
	for _, observe := range s.observers {
		observe(&t.record)
	}
}

// logTurns writes each turn's line. The conversation is shown by the first characters of its keyed hash. redis, if there is one, tells
// a ticket that replicas share from one that is kept here.
func logTurns(logger *slog.Logger, redis func() string) Observer {
	return func(r *Record) {
		level := slog.LevelInfo
		attrs := []any{
			"turn", r.Turn, "path", r.API.Path(), "conversation", r.Conversation,
			"prefill", r.Leg(upstream.RolePrefill).Instance, "decode", r.Leg(upstream.RoleDecode).Instance,
			"kv_path", r.Path.Header(), "reuse", r.Reuse.Header(time.Now()), "stored", r.Stored,
			"status", r.Status, "legs", len(r.Legs), "retries", r.Retries, "events", r.Answer.Events, "bytes", r.Answer.Bytes,
			"queue_ms", milliseconds(r.Queued), "prefill_ms", milliseconds(r.PrefillTook()), "ttft_ms", milliseconds(r.TTFT), "duration_ms", milliseconds(r.Took),
		}
		if redis != nil {
			attrs = append(attrs, "redis", redis())
		}
		if r.Answer.Buffered {
			attrs = append(attrs, "stream", "buffered")
		}
		if r.Err != nil {
			attrs = append(attrs, "error", r.Err)
			if r.Status >= 500 || r.Aborted() {
				level = slog.LevelWarn
			}
		}
		logger.Log(context.Background(), level, "turn", attrs...)
	}
}

func milliseconds(d time.Duration) float64 {
	return float64(d.Round(100*time.Microsecond)) / float64(time.Millisecond)
}

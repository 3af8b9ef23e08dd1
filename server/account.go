package server

import (
	"context"
	"errors"
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
		timing = append(timing, fmt.Sprintf("queue;dur=%.1f", Milliseconds(r.Queued)))
	}
	timing = append(timing, fmt.Sprintf("lookup;dur=%.1f", Milliseconds(r.Lookup)))
	if r.Leg(upstream.RolePrefill).Instance != "" {
		timing = append(timing, fmt.Sprintf("prefill;dur=%.1f", Milliseconds(r.PrefillTook())))
	}
	if r.TTFT > 0 {
		timing = append(timing, fmt.Sprintf("ttft;dur=%.1f", Milliseconds(r.TTFT)))
	}
	header.Set("Server-Timing", strings.Join(timing, ", "))
}

// account learns from a turn that has ended, and hands the record of a turn to its observers.
func (s *Server) account(t *turn, err error) {
	t.record.Took, t.record.Err = time.Since(t.record.Began), err
	if t.record.Path.Way == WayDecodeOnly && t.record.Status == http.StatusOK {
		s.turns.ratios.learn(t, t.record.Answer.PromptTokens) // else prefill's answer has told
	}
	t.record.Unserved = t.record.Model != "" && !s.deps.Fleet.Serves(t.record.Model)
	t.record.Answer.Finish = clip(t.record.Answer.Finish)
	for _, observe := range s.observers {
		observe(&t.record)
	}
}

// logTurns writes each turn's line, which is its receipt. Its keys are always the same, in this order; times are in milliseconds:
//
//   - whose: turn (X-Request-Id), trace (that the turn's spans are in), path (of the API), model ("other" for one that no engine is known
//     to serve), conversation (the first characters of its keyed hash), id_source (where its id was found);
//   - which way: prefill, decode (the instances that had the last leg of each role), kv_path (X-KV-Path), legs (that were sent),
//     retries;
//   - what was reused: reuse (X-KV-Reuse), outcome (hit, miss, off), reason (of a miss), differs (where a rewritten history does),
//     proof, tokens_offered, tokens_confirmed (that prefill took from caches, -1 if it does not tell);
//   - what was answered: stored (yes, or why no ticket is left), prompt_tokens, completion_tokens (by decode's usage, -1 if it was not
//     read), finish, events, bytes;
//   - how it went: status, code (of the error that the client got), blame (the instance whose leg failed the turn), kind (how), error;
//   - how long it took: queue_ms, lookup_ms, prefill_ms, ttft_ms, duration_ms, and saved_ms, which prefill was spared.
//
// Two come only where there is something to say: redis (up, or what is wrong with it; with it a ticket that replicas share is told from one
// that is kept here) and stream (buffered). A line holds neither prompts nor answers, and no name that a client has made up.
func logTurns(logger *slog.Logger, redis func() string) Observer {
	return func(r *Record) {
		level := slog.LevelInfo
		outcome, reason := r.Reuse.Outcome()
		blamed, kind := r.Blamed()
		failure := ""
		if r.Err != nil {
			failure = r.Err.Error()
			if r.Status >= 500 || r.Aborted() {
				level = slog.LevelWarn
			}
		}
		attrs := []any{
			"turn", r.Turn, "trace", r.Trace.Shown(), "path", r.API.Path(), "model", r.ModelShown(),
			"conversation", r.Conversation, "id_source", r.Source,
			"prefill", r.Leg(upstream.RolePrefill).Instance, "decode", r.Leg(upstream.RoleDecode).Instance,
			"kv_path", r.Path.Header(), "legs", len(r.Legs), "retries", r.Retries,
			"reuse", r.Reuse.Header(time.Now()), "outcome", outcome, "reason", reason, "differs", r.Reuse.Differs,
			"proof", r.Reuse.Proof, "tokens_offered", r.Reuse.Offered, "tokens_confirmed", r.Reuse.Cached,
			"stored", r.Stored, "prompt_tokens", r.Answer.PromptTokens, "completion_tokens", r.Answer.CompletionTokens,
			"finish", r.Answer.Finish, "events", r.Answer.Events, "bytes", r.Answer.Bytes,
			"status", r.Status, "code", r.Code, "blame", blamed, "kind", kind, "error", failure,
			"queue_ms", Milliseconds(r.Queued), "lookup_ms", Milliseconds(r.Lookup), "prefill_ms", Milliseconds(r.PrefillTook()),
			"ttft_ms", Milliseconds(r.TTFT), "duration_ms", Milliseconds(r.Took), "saved_ms", Milliseconds(r.Reuse.Saved),
		}
		if redis != nil {
			attrs = append(attrs, "redis", redis())
		}
		if r.Answer.Buffered {
			attrs = append(attrs, "stream", "buffered")
		}
		logger.Log(context.Background(), level, "turn", attrs...)
	}
}

// Blamed is the instance whose leg has failed the turn, and how, as [upstream.Kind] has it; "" where no leg has.
func (r *Record) Blamed() (instance, kind string) {
	var failed *upstream.LegError
	if errors.As(r.Err, &failed) {
		return failed.Instance, failed.Kind.String()
	}
	return "", ""
}

// ModelShown is the model as operators are shown it: "other" for a name that no engine is known to serve, which is the client's own
// text, as long as a body may be.
func (a *Asked) ModelShown() string {
	if a.Unserved {
		return "other"
	}
	return a.Model
}

// maxFinish bounds a finish_reason, which is an engine's text. vLLM's have fourteen bytes at most.
const maxFinish = 64

// clip returns a copy: what it is given is a part of the answer's text, which observers would keep in memory as a whole.
func clip(finish string) string {
	if len(finish) > maxFinish {
		finish = strings.ToValidUTF8(finish[:maxFinish], "")
	}
	return strings.Clone(finish)
}

// Milliseconds is a time as operators read it, in tenths of a millisecond.
func Milliseconds(d time.Duration) float64 {
	return float64(d.Round(100*time.Microsecond)) / float64(time.Millisecond)
}

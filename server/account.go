package server

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"carryover/upstream"
)

// turnHeaders sets the headers by which a client or an operator sees what a turn
// reused.
func turnHeaders(header http.Header, r *Record) {
	// In one text and one array, and under names as net/http would spell them but for X-KV-…, of which it would make X-Kv-….
	b := r.Reuse.appendHeader(make([]byte, 0, 256), time.Now())
	reuse := len(b)
	b = appendTiming(b, r)
	timing := len(b)
	b = r.Path.appendHeader(b)
	headers := string(b)
	values := [...]string{r.Turn, headers[:reuse], headers[reuse:timing], headers[timing:]}
	header["X-Request-Id"], header["X-KV-Reuse"], header["Server-Timing"] = values[0:1:1], values[1:2:2], values[2:3:3]
	if r.API == upstream.Messages { // by which Anthropic's SDKs know it
		header["Request-Id"] = values[0:1:1]
	}
	if values[3] != "" {
		header["X-KV-Path"] = values[3:4:4]
	}
}

// appendTiming says how long the turn took so far (W3C Server Timing).
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
//     proof, tokens_offered, tokens_read (that prefill did not compute because of it), tokens_confirmed (that it took from caches, its own
//     included, -1 if it does not tell);
//   - what was answered: stored (yes, or why no ticket is left), prompt_tokens, completion_tokens (by decode's usage, -1 if it was not
//     read), finish, events, bytes;
//   - how it went: status, code (of the error that the client got), blame (the instance whose leg failed the turn), kind (how), error;
//   - how long it took: queue_ms, lookup_ms, prefill_ms, ttft_ms, duration_ms, and saved_ms, which prefill was spared.
//
// Two come only where there is something to say: redis (up, or what is wrong with it; with it a ticket that replicas share is told from one
// that is kept here) and stream (buffered). A line holds neither prompts nor answers, and no name that a client has made up.
func logTurns(logger *slog.Logger, redis func() string) Observer {
	handler := logger.Handler()
	return func(r *Record) {
		now, level := time.Now(), slog.LevelInfo
		if r.Err != nil && (r.Status >= 500 || r.Aborted()) {
			level = slog.LevelWarn
		}
		if !handler.Enabled(context.Background(), level) {
			return
		}
		outcome, reason := r.Reuse.Outcome()
		blamed, kind := r.Blamed()
		failure := ""
		if r.Err != nil {
			failure = r.Err.Error()
		}
		b := r.Path.appendHeader(make([]byte, 0, 256))
		path := len(b)
		headers := string(r.Reuse.appendHeader(b, now)) // both in one text
		attrs := append(make([]slog.Attr, 0, 40),
			slog.String("turn", r.Turn), slog.String("trace", r.Trace.Shown()), slog.String("path", r.API.Path()), slog.String("model", r.ModelShown()),
			slog.String("conversation", r.Conversation), slog.String("id_source", r.Source),
			slog.String("prefill", r.Leg(upstream.RolePrefill).Instance), slog.String("decode", r.Leg(upstream.RoleDecode).Instance),
			slog.String("kv_path", headers[:path]), slog.Int("legs", len(r.Legs)), slog.Int("retries", r.Retries),
			slog.String("reuse", headers[path:]), slog.String("outcome", outcome), slog.String("reason", reason),
			slog.String("differs", r.Reuse.Differs),
			slog.String("proof", r.Reuse.Proof), slog.Int("tokens_offered", r.Reuse.Offered), slog.Int("tokens_read", r.Reuse.Read),
			slog.Int("tokens_confirmed", r.Reuse.Cached),
			slog.String("stored", r.Stored), slog.Int("prompt_tokens", r.Answer.PromptTokens), slog.Int("completion_tokens", r.Answer.CompletionTokens),
			slog.String("finish", r.Answer.Finish), slog.Int64("events", r.Answer.Events), slog.Int64("bytes", r.Answer.Bytes),
			slog.Int("status", r.Status), slog.String("code", r.Code), slog.String("blame", blamed), slog.String("kind", kind), slog.String("error", failure),
			milliseconds("queue_ms", r.Queued), milliseconds("lookup_ms", r.Lookup), milliseconds("prefill_ms", r.PrefillTook()),
			milliseconds("ttft_ms", r.TTFT), milliseconds("duration_ms", r.Took), milliseconds("saved_ms", r.Reuse.Saved),
		)
		if redis != nil {
			attrs = append(attrs, slog.String("redis", redis()))
		}
		if r.Answer.Buffered {
			attrs = append(attrs, slog.String("stream", "buffered"))
		}
		// Without the place in the source, which no line shows: to find it costs as much as a tenth of the line.
		record := slog.NewRecord(now, level, "turn", 0)
		record.AddAttrs(attrs...)
		_ = handler.Handle(context.Background(), record) // as a Logger does
	}
}

func milliseconds(key string, d time.Duration) slog.Attr { return slog.Float64(key, Milliseconds(d)) }

// Blamed is the instance whose leg has failed the turn, and how, as [upstream.Kind] has it; "" where no leg has.
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

package record

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"carryover/upstream"
)

// EmptyOmitter is a log handler for people: a turn's line has no empty members there.
type EmptyOmitter interface{ OmitsEmpty() bool }

// Log writes one line in the log for each turn: the turn's record. The keys have this order; times are in milliseconds:
//
//   - result: outcome (of reuse: hit, prefix, miss, off), reason (why it is no hit), differs (where a rewritten history differs), tokens_offered,
//     tokens_read (tokens that reuse spared prefill), tokens_confirmed (tokens that prefill took from caches, its own included; -1 if it
//     does not report them), prompt_tokens, completion_tokens (from decode's usage, -1 if no usage was read);
//   - time: ttft_ms (of a stream), answer_ms (of a whole answer), duration_ms;
//   - instances: prefill, decode (the instance that had the last leg of each role);
//   - errors: status, code (of the error that the client got, or that broke its answer), blame (the instance whose leg failed the turn), kind (of that failure),
//     error;
//   - hint: of a miss, what happened and what can be done, in words;
//   - more about the answer and its path: stored (yes, or why no ticket is left), keep (what was chosen for
//     the ticket: ticket, hand_back, release), keep_ms (for how long it waits for a turn), finish, reuse (X-KV-Reuse), kv_path (X-KV-Path), proof,
//     legs (how many were sent), retries, events, bytes, queue_ms, lookup_ms, prefill_ms, and saved_ms (prefill time saved);
//   - identity: turn (X-Request-Id), trace (the id of the trace with the turn's spans), path (of the API), model ("other" for one that no
//     engine is known to serve), conversation (the first characters of its keyed hash), id_source (where its id was found, content if
//     it has none), client and tenant (request.ClientsMode).
//
// Two keys appear only if they apply: redis (up, or what is wrong with it; it shows whether replicas share a ticket or it is kept here) and
// A handler that is an [EmptyOmitter] gets no empty members. A line contains no prompts, no answers, and no name that a
// client has made up.
func Log(logger *slog.Logger, redis func() string) Observer {
	handler := logger.Handler()
	omitter, _ := handler.(EmptyOmitter)
	short := omitter != nil && omitter.OmitsEmpty()
	return func(r *Turn) {
		now, level := time.Now(), slog.LevelInfo
		if r.End.Err != nil && (r.End.Status >= http.StatusInternalServerError || r.End.Status == http.StatusOK && !r.ClientLeft()) {
			level = slog.LevelWarn
		}
		if !handler.Enabled(context.Background(), level) {
			return
		}
		outcome, reason := r.Reuse.Outcome()
		hit := outcome == Hit
		blamed, kind := r.Blamed()
		failure := ""
		if r.End.Err != nil {
			failure = r.End.Err.Error()
		}
		l, attrs := line{short}, make([]slog.Attr, 0, 46) // attrs stays on the stack
		attrs = l.text(attrs, "outcome", outcome)
		attrs = l.text(attrs, "reason", reason)
		attrs = l.text(attrs, "differs", r.Reuse.Differs)
		attrs = l.number(attrs, "tokens_offered", r.Reuse.Offered, hit)
		attrs = l.number(attrs, "tokens_read", r.Reuse.Read, hit)
		attrs = l.number(attrs, "tokens_confirmed", r.Reuse.Cached, false)
		attrs = l.number(attrs, "prompt_tokens", r.Answer.PromptTokens, false)
		attrs = l.number(attrs, "completion_tokens", r.Answer.CompletionTokens, false)
		attrs = l.milliseconds(attrs, "ttft_ms", r.TTFT)
		attrs = l.milliseconds(attrs, "answer_ms", r.Whole)
		attrs = l.milliseconds(attrs, "duration_ms", r.Took)
		attrs = l.text(attrs, "prefill", r.Leg(upstream.RolePrefill).Instance)
		attrs = l.text(attrs, "decode", r.Leg(upstream.RoleDecode).Instance)
		attrs = l.number(attrs, "status", r.End.Status, true)
		attrs = l.text(attrs, "code", r.End.Code)
		attrs = l.text(attrs, "blame", blamed)
		attrs = l.text(attrs, "kind", kind)
		attrs = l.text(attrs, "error", failure)
		attrs = l.text(attrs, "hint", r.Hint())
		attrs = l.text(attrs, "stored", r.Stored)
		attrs = l.text(attrs, "keep", r.End.Keep.What)
		attrs = l.milliseconds(attrs, "keep_ms", r.End.Keep.For)
		attrs = l.text(attrs, "finish", r.Answer.Finish)
		attrs = l.text(attrs, "reuse", r.Reuse.Header(now))
		attrs = l.text(attrs, "kv_path", r.Path.Header())
		attrs = l.text(attrs, "proof", r.Reuse.Proof)
		attrs = l.number(attrs, "legs", len(r.Legs), false)
		attrs = l.number(attrs, "retries", r.Retries, false)
		attrs = l.number(attrs, "events", int(r.Answer.Events), false)
		attrs = l.number(attrs, "bytes", int(r.Answer.Bytes), false)
		attrs = l.milliseconds(attrs, "queue_ms", r.Queued)
		attrs = l.milliseconds(attrs, "lookup_ms", r.Lookup)
		attrs = l.milliseconds(attrs, "prefill_ms", r.PrefillTook())
		attrs = l.milliseconds(attrs, "saved_ms", r.Reuse.Saved)
		attrs = l.text(attrs, "turn", r.Turn)
		attrs = l.text(attrs, "trace", r.Trace.Shown())
		attrs = l.text(attrs, "path", r.API.Path())
		attrs = l.text(attrs, "model", r.ModelShown())
		attrs = l.text(attrs, "conversation", r.Conversation)
		attrs = l.text(attrs, "id_source", r.Source)
		attrs = l.text(attrs, "client", r.Client)
		attrs = l.text(attrs, "tenant", r.Tenant)
		if redis != nil {
			attrs = l.text(attrs, "redis", redis())
		}
		// The record has no source position, which no line shows: finding it costs as much as a tenth of the line.
		rec := slog.NewRecord(now, level, "turn", 0)
		rec.AddAttrs(attrs...)
		_ = handler.Handle(context.Background(), rec) // slog.Logger ignores the error too
	}
}

// line appends the members of a turn's line. A short line leaves out empty members.
type line struct{ short bool }

func (l line) text(attrs []slog.Attr, key, value string) []slog.Attr {
	if value == "" && l.short {
		return attrs
	}
	return append(attrs, slog.String(key, value))
}

// number treats 0, and -1 for an unknown number, as empty unless told is set.
func (l line) number(attrs []slog.Attr, key string, n int, told bool) []slog.Attr {
	if n <= 0 && !told && l.short {
		return attrs
	}
	return append(attrs, slog.Int(key, n))
}

func (l line) milliseconds(attrs []slog.Attr, key string, d time.Duration) []slog.Attr {
	if d < 50*time.Microsecond && l.short { // it would be shown as 0
		return attrs
	}
	return append(attrs, milliseconds(key, d))
}

func milliseconds(key string, d time.Duration) slog.Attr { return slog.Float64(key, Milliseconds(d)) }

package record

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"carryover/upstream"
	"carryover/upstream/body"
)

// EmptyOmitter is a log handler for people, whose lines have no empty members.
type EmptyOmitter interface{ OmitsEmpty() }

// Log writes one line for each turn: its record. Times are in milliseconds. The keys have this order:
//
//   - result: outcome (of reuse: hit, prefix, miss, off), reason (why it is no hit), differs (where a rewritten history differs), tokens_offered,
//     tokens_read (tokens that reuse spared prefill), tokens_confirmed (tokens that prefill took from caches, its own included; -1 if it
//     does not report them), prompt_tokens, completion_tokens (from decode's usage, -1 if no usage was read);
//   - time: ttft_ms (of a stream), answer_ms (of a whole answer), duration_ms;
//   - instances: prefill, decode (each role's last leg);
//   - errors: status, code (of the error that the client got, or that broke its answer), blame (the instance whose leg failed the turn), kind (of
//     that failure), error;
//   - hint: for a miss, what happened and what can be done, in words;
//   - answer and path: stored (yes, or why no ticket is left), keep (the choice for the ticket: ticket, hand_back, release), keep_ms (how long it
//     waits for a turn), finish, reuse (X-KV-Reuse), kv_path (X-KV-Path), proof, legs (how many were sent), retries, events, bytes, queue_ms,
//     lookup_ms, prefill_ms, and saved_ms (prefill time saved);
//   - identity: turn (X-Request-Id), trace (the id of the trace with the turn's spans), path (of the API), model ("other" for one that no
//     engine is known to serve), conversation (the first characters of its keyed hash), id_source (where its id was found, content if
//     it has none), client and tenant (request.ClientsMode).
//
// The key redis appears only if it applies: up, or what is wrong with it. It shows whether replicas share a ticket, or it is kept here. An
// [EmptyOmitter] gets no empty members. A line contains no prompts, no answers, and no name that a client has made up.
func Log(logger *slog.Logger, redis func() string) Observer {
	_, short := logger.Handler().(EmptyOmitter)
	return func(r *Turn) {
		u, got := &r.Reuse, &r.Answer
		outcome, reason := u.Outcome()
		blamed, kind := r.Blamed()
		level, failure := slog.LevelInfo, ""
		if r.Err != nil {
			failure = r.Err.Error()
			if r.Status >= http.StatusInternalServerError || r.Status == http.StatusOK && !r.ClientLeft() {
				level = slog.LevelWarn
			}
		}
		members := [...]any{
			"outcome", outcome, "reason", reason, "differs", u.Differs, "tokens_offered", u.Offered, "tokens_read", u.Read, "tokens_confirmed", u.Cached,
			"prompt_tokens", got.PromptTokens, "completion_tokens", got.CompletionTokens,
			"ttft_ms", r.TTFT, "answer_ms", r.Whole, "duration_ms", r.Took,
			"prefill", r.Leg(upstream.RolePrefill).Instance, "decode", r.Leg(upstream.RoleDecode).Instance,
			"status", r.Status, "code", r.Code, "blame", blamed, "kind", kind, "error", failure,
			"hint", r.Hint(),
			"stored", r.Stored, "keep", r.Keep.What, "keep_ms", r.Keep.For, "finish", got.Finish, "reuse", u.Header(), "kv_path", r.Path.Header(),
			"proof", u.Proof, "legs", len(r.Legs), "retries", r.Retries, "events", int(got.Events), "bytes", int(got.Bytes),
			"queue_ms", r.Queued, "lookup_ms", r.Lookup, "prefill_ms", r.PrefillTook(), "saved_ms", u.Saved,
			"turn", r.Turn, "trace", r.Trace.Shown(), "path", r.API.Path(), "model", r.ModelShown(),
			"conversation", r.Conversation, "id_source", r.Source, "client", r.Client, "tenant", r.Tenant,
		}
		attrs := make([]slog.Attr, 0, len(members)/2+1) // stays on the stack, like the members
		for i := 0; i < len(members); i += 2 {
			attr, empty := slog.Attr{Key: members[i].(string)}, false
			switch value := members[i+1].(type) {
			case string:
				attr.Value, empty = slog.StringValue(value), value == ""
			case int: // 0, and -1 for an unknown number, are empty, but 0 of a hit says that it saved nothing
				attr.Value, empty = slog.IntValue(value), value <= 0 && (!u.Hit || attr.Key != "tokens_read")
			case time.Duration: // what would be shown as 0 is empty
				attr.Value, empty = slog.Float64Value(Milliseconds(value)), value < 50*time.Microsecond
			}
			if !empty || !short {
				attrs = append(attrs, attr)
			}
		}
		if redis != nil {
			attrs = append(attrs, slog.String("redis", redis()))
		}
		logger.LogAttrs(context.Background(), level, "turn", attrs...)
	}
}

func setHeaders(header http.Header, r *Turn) {
	header.Set("X-Request-Id", r.Turn)
	if r.API == body.Messages { // the header that Anthropic's SDKs read
		header.Set("Request-Id", r.Turn)
	}
	header.Set("Server-Timing", timing(r))
	header["X-KV-Reuse"] = []string{r.Reuse.Header()} // Set would change the name to X-Kv-Reuse
	if path := r.Path.Header(); path != "" {
		header["X-KV-Path"] = []string{path}
	}
}

// timing returns how long the turn took so far (W3C Server Timing).
func timing(r *Turn) string {
	b := make([]byte, 0, 96)
	add := func(part string, took time.Duration) {
		if took > 0 {
			b = strconv.AppendFloat(append(b, part...), Milliseconds(took), 'f', 1, 64)
		}
	}
	add(", queue;dur=", r.Queued)
	add(", lookup;dur=", max(1, r.Lookup)) // a turn that ended before it shows 0.0
	add(", prefill;dur=", r.PrefillTook())
	add(", ttft;dur=", r.TTFT)
	add(", answer;dur=", r.Whole)
	return string(b[len(", "):])
}

// Milliseconds returns a time in milliseconds, rounded to tenths.
func Milliseconds(d time.Duration) float64 {
	return float64(d.Round(100*time.Microsecond).Microseconds()) / 1000
}

// Header returns the value of X-KV-Reuse. It has the ticket's age.
func (r *Reuse) Header() string {
	header, reason := r.Outcome()
	switch header {
	case Prefix:
		header += fmt.Sprintf(";tokens=%d", r.Prefix)
	case Hit:
		read, confirmed := "", ""
		if r.Cached >= 0 {
			read, confirmed = fmt.Sprintf(";read=%d", r.Read), fmt.Sprintf(";confirmed=%d", r.Cached)
		}
		age := max(0, upstream.Elapsed(r.FreshAsOf, time.Now())).Seconds()
		header += fmt.Sprintf(";tokens=%d%s;age=%.1f;proof=%s%s", r.Offered, read, age, r.Proof, confirmed)
	}
	if reason != "" {
		header += ";reason=" + reason
	}
	if r.Differs != "" {
		header += ";differs=" + r.Differs
	}
	return header
}

// Header returns the value of X-KV-Path, "" if no way was chosen.
func (p *Path) Header() string {
	reason := ""
	switch p.Way {
	case "":
		return ""
	case WayDecodeOnly:
		reason = ";reason=" + p.Reason
	}
	return p.Way + reason + ";tokens=" + strconv.Itoa(p.Tokens)
}

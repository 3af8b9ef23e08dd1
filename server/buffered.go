package server

import (
	"context"

	"github.com/tidwall/gjson"

	"carryover/server/record"
	"carryover/sse"
	"carryover/sse/rawjson"
	"carryover/upstream"
	"carryover/upstream/body"
	"carryover/upstream/fleet"
	"carryover/upstream/fleet/facts"
)

// buffers reports whether decode is asked for a whole answer, out of which the
// client's stream is made: stock vLLM before 0.33 puts kv_transfer_params into whole answers
// only (vLLM #40186). Without them no ticket comes of an answer, and nothing of it can be released: decode keeps
// the blocks of each answer to a hand-over for its whole TTL. The client waits for the last token then, so that
// a stream that leaves no ticket stays one where decode is known to have the plug-in.
func (s *turns) buffers(t *turn, decode *fleet.Incarnation, handed bool) bool {
	switch {
	case !s.cfg.BufferStreams, !t.stream, !handed:
		return false
	case t.api.Rendered(): // its events tell params, or the plug-in does
		return false
	case t.ineligible == body.WhyPromptLogprobs: // engines refuse it in streams, and to whole answers it adds what no stream has
		return false
	case s.cfg.Release && s.deps.Connector.Traits().Reuses && decode.PlugIn.Found() != facts.Yes: // to know what is to be released
		return true
	}
	return t.proof != nil && t.conversation.known && t.lacks == "" && t.ids.Lacks() == ""
}

// respondBuffered sends a whole answer as a stream to a client that asked for one. Until all of the answer has arrived, a failure is an
// ordinary error with a status.
func (s *turns) respondBuffered(ctx context.Context, out *commitWriter, t *turn, d *decoding) (fault int, _ error) {
	d.Spare()
	body, err := upstream.ReadAll(d, maxAnswer)
	if err != nil {
		return 0, s.brokenAnswer(ctx, d, err)
	}
	a := newAnswer(t, d)
	rest := a.whole(body)
	if a.foreign {
		return 0, s.brokenAnswer(ctx, d, upstream.ErrForeign)
	}
	options, _ := t.req.Member("stream_options")
	b := eventBuffer{api: t.api, includeUsage: gjson.GetBytes(options, "include_usage").Bool()}
	b.continuous = b.includeUsage && gjson.GetBytes(options, "continuous_usage_stats").Bool()
	if s.cfg.ExposeParams && rawjson.Valid(a.params) {
		b.params = gjson.GetBytes(a.params, "@ugly").Raw
	}
	err = b.write(rest)
	a.failed = a.failed || err != nil
	s.tickets.keep(ctx, t, a)
	if err != nil {
		return 0, &upstream.LegError{Role: upstream.RoleDecode, Instance: d.incarnation.Engine().Name, Kind: upstream.Garbage, Sent: true, Err: err}
	}
	out.announceStream(eventStream)
	told := a.record(sse.Stats{Events: b.events, Bytes: int64(len(b.out))})
	told.Buffered = true
	t.record.Answered(told)
	if _, err := out.Write(b.out); err != nil {
		return 0, record.ErrClientGone
	}
	return told.Fault, nil
}

package turn

import (
	"github.com/tidwall/gjson"

	"carryover/server/answer"
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
func (a *attempt) buffers(decode *fleet.Incarnation, handed bool) bool {
	switch {
	case !a.cfg.BufferStreams, !a.Request.Stream, !handed:
		return false
	case a.Request.API.Rendered(): // its events tell params, or the plug-in does
		return false
	case a.proving.Ineligible == body.WhyPromptLogprobs: // engines refuse it in streams, and to whole answers it adds what no stream has
		return false
	case a.cfg.Release && a.deps.Connector.Traits().Reuses && decode.PlugIn.Found() != facts.Yes: // to know what is to be released
		return true
	}
	return a.proving.LeavesTicket()
}

// buffered sends a whole answer as a stream to a client that asked for one. Until all of the answer has arrived, a failure is an ordinary
// error with a status.
func (r *reading) buffered() error {
	r.decoding.Spare()
	body, err := upstream.ReadAll(r.decoding, maxAnswer)
	if err != nil {
		return r.broken(err)
	}
	rest := r.Whole(body)
	result := r.Result(false)
	if result.Foreign {
		return r.broken(upstream.ErrForeign)
	}
	b := answer.EventBuffer{API: r.out.api, Cached: r.decoding.leg.Cached.Told}
	b.Options(r.options)
	r.options = nil // a part of the body, which is freed when the answer is committed
	if r.runner.cfg.ExposeParams && rawjson.Valid(result.Params) {
		b.Params = gjson.GetBytes(result.Params, "@ugly").Raw
	}
	if err = b.Write(rest); err != nil {
		result.Completeness = answer.Incomplete
	}
	r.keep(result)
	if err != nil {
		return r.decoding.failed(upstream.LegError{Kind: upstream.Garbage, Err: err})
	}
	r.out.announceWholeStream()
	stream, events := b.Stream()
	told := r.Record(sse.Stats{Events: events, Bytes: int64(len(stream))})
	told.Buffered = true
	r.out.record.Answered(told)
	if _, err := r.out.Write(stream); err != nil {
		return record.ErrClientGone
	}
	return nil
}

package turn

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"

	"carryover/server/answer"
	"carryover/server/background"
	"carryover/server/record"
	"carryover/server/request"
	"carryover/server/reuse"
	"carryover/sse"
	"carryover/sse/rawjson"
	"carryover/upstream"
	"carryover/upstream/fleet/health"
	"carryover/upstream/fleet/pairs"
)

// maxAnswer is how many bytes of a whole answer are read at most.
const maxAnswer = 64 << 20

// reading is decode's answer, from the leg until the client has all of it. It lives as long as the stream, so it holds nothing of the prompt.
type reading struct {
	answer.Reader
	*upstream.Stream // nil until the headers have arrived

	h       *Handler
	record  *record.Builder
	leg     answer.Leg
	sent    *record.Leg
	origin  reuse.Origin // of the answer's KV
	head    []byte       // what the client gets before decode's first event, nil for nothing
	untaken func()       // rescues the hand-over; nil once decode has taken it
	unread  bool         // decode has got a hand-over, and not shown yet that it has loaded the KV
	wait    health.Wait  // for the beginning of the answer

	turn  *turn
	out   *commitWriter
	held  request.Reservation // for what is held of the answer; a usual stream holds nothing worth counting
	relay *sse.Relay          // nil for a whole answer
	kept  bool                // the answer's ticket has been stored or given up
}

// Close ends the leg, and rescues a hand-over that decode has not taken.
func (r *reading) Close() {
	r.Stream.Close()
	r.wait.Over()
	if r.untaken != nil {
		r.untaken()
	}
}

// respond sends decode's answer to the client and stores the ticket that the answer leaves. A failure before the first byte is an ordinary
// error. After the first byte the answer has broken off, and the connection must be aborted.
func (h *Handler) respond(ctx context.Context, t *turn, r *reading) (err error) {
	defer r.Close()
	r.turn, r.out, r.held = t, &t.out, t.share.Beside()
	r.leg.IDs = h.deps.Tickets.Listen(&r.origin)
	defer r.held.GiveBack()
	r.Reset(&r.leg, r)
	var relayed sse.Stats
	switch {
	case r.MediaType() == "text/event-stream":
		r.start(ctx)
		err = r.ended(ctx, r.relay.Run(r.Stream))
		relayed = r.relay.Stats()
	case t.Stream && t.out.stop(): // headers of a stream have been sent
		err = r.garbage(errors.New("the answer is no stream"))
	default:
		err = r.relayWhole(ctx)
	}
	t.record.Answered(r.Record(relayed))
	told := err
	if err == nil && r.Failed { // the engine has told an error within its answer
		told = r.told()
		t.record.Broke(told, h.deps.Errors.Map(told).Code)
	}
	t.failed.unread = r.blame(told, nil, false)
	r.sent.Over(told)
	return err
}

// Begun implements answer.Turn. It tells the fleet how long decode took from a hand-over to the first event: waiting in its queue, reading the KV,
// and one step of the engine. Without a hand-over the time depends on the prompt, so only the record gets it.
func (r *reading) Begun() {
	r.wait.Heard()
	if took := r.sent.Begun(); r.origin.Prefill != nil {
		r.origin.Decode.Engine().Health.Took(1, took)
	}
}

// Passed implements answer.Turn. The first event has been compared with the request's ids, so the request is freed. What the hand-over has of the
// answer goes out before that event.
func (r *reading) Passed() {
	r.taken()
	if r.head != nil {
		_, _ = r.out.Write(r.head) // the relay's write behind it fails too
	}
}

// taken notes that decode has taken the hand-over: it has begun the answer. An error is no sign of that, and a rescue may then need the request.
func (r *reading) taken() {
	if r.Failed {
		return
	}
	if r.untaken = nil; r.unread {
		r.unread = false
		r.origin.Prefill.EndLoad(r.origin.Decode, pairs.Answered)
	}
	r.turn.dropBody()
}

// MayRestart implements answer.Turn.
func (r *reading) MayRestart() bool {
	return !r.relay.Released() && r.h.mayRestart(r.turn, upstream.RoleDecode)
}

// keep stores the ticket that the answer leaves, if it leaves one. Only the first call has an effect. left says that the client has left, or
// that the server ends the turn. unread are the params in what has passed unread, nil for none.
func (r *reading) keep(ctx context.Context, left bool, unread []byte) {
	result := r.Result(left)
	if r.kept || result.Foreign { // the blocks of a foreign answer belong to another request
		return
	}
	r.kept = true
	if rawjson.Kind(unread) == '{' {
		result.Params = unread
	}
	r.record.Kept(r.h.deps.Tickets.Keep(ctx, &r.origin, &r.turn.found, result))
}

// room adds n bytes to what the turn holds of its answer; 0 gives all back. An answer that the connector rewrites can't pass unread, so it is held
// even without room.
func (r *reading) room(n int64) bool {
	if n == 0 {
		r.held.GiveBack()
		return true
	}
	return r.held.Grow(n) == nil || r.leg.Rewrite != nil
}

// relayWhole relays a JSON answer as it is, without kv_transfer_params.
func (r *reading) relayWhole(ctx context.Context) error {
	r.Spare()
	r.out.stream = "" // an attempt before may have got one
	body, err := upstream.ReadWithin(r.Stream, maxAnswer, nil, r.room)
	switch {
	case errors.Is(err, upstream.ErrAnswerTooLarge) && r.leg.Rewrite == nil:
		return r.passUnread(ctx, body)
	case err != nil:
		return r.broken(ctx, err)
	}
	r.wait.Heard()
	rest := r.Whole(body)
	r.keep(ctx, false, nil)
	switch {
	case r.Foreign:
		return r.foreign()
	case r.Result(false).Ineligible == answer.Unparsable:
		return r.garbage(errors.New("the answer is not JSON"))
	}
	if r.taken(); r.Unwritable != nil {
		return r.garbage(r.Unwritable)
	}
	r.out.w.Header().Set("Content-Length", strconv.Itoa(rest.Len()))
	for _, piece := range rest {
		if _, err := r.out.Write(piece); err != nil {
			return record.ErrClientGone
		}
	}
	return nil
}

// passUnread passes on a whole answer as it comes, beginning with the part that was read. kv_transfer_params becomes null.
func (r *reading) passUnread(ctx context.Context, part []byte) error {
	r.UnreadWhole(part)
	if r.Foreign {
		return r.foreign()
	}
	r.taken()
	to := rawjson.NewNuller(r.out, r.out.Flush, r.Blank())
	_, _ = to.Write(part)
	r.held.GiveBack()
	_, err := io.Copy(to, r.Stream) // even if the client has gone, because then the engine's blocks are all that matters
	switch r.keep(ctx, false, to.First); {
	case to.Err != nil:
		return record.ErrClientGone
	case err != nil:
		return r.broken(ctx, err)
	}
	return nil
}

// start makes the relay of a stream. The reader sees each event before the client does. Decode's first chunk waits for the next event, at most for
// LegConfig.FirstEvent. When the reader sees the end, the ticket is stored.
func (r *reading) start(ctx context.Context) {
	r.out.stream = r.ContentType
	cfg := r.Relay()
	cfg.Patience, cfg.Memory, cfg.Room = r.h.cfg.FirstEvent, &r.h.streamed, r.room
	cfg.Observe = func(e sse.Event) sse.Verdict {
		if r.Seen { // what an API server sends before that does not show that decode works
			r.wait.Heard()
		}
		verdict := r.Observe(e)
		if r.Done {
			r.keep(ctx, false, r.relay.Blanked())
		}
		return verdict
	}
	r.relay = sse.New(r.out, r.out.Flush, cfg)
}

// ended returns the turn's error after the relay has ended, nil for a complete answer.
func (r *reading) ended(ctx context.Context, err error) error {
	_, unwritten := errors.AsType[*sse.WriteError](err)
	left := err != nil && (unwritten || ctx.Err() != nil) // decode may have had more to send
	if left && r.Seen && !r.Failed {                      // the event that waits shows that decode takes the hand-over, but not that it could load it
		r.untaken = nil
	}
	r.keep(ctx, left, r.relay.Blanked()) // does nothing if the end was seen, because the ticket was stored then
	switch stopped := errors.Is(err, sse.ErrStopped); {
	case err == nil:
		r.out.commit() // an empty stream
		return nil
	case stopped && r.Unwritable != nil:
		err = r.garbage(r.Unwritable)
	case stopped && r.Foreign:
		err = r.foreign()
	case stopped && r.Fault == http.StatusServiceUnavailable: // an engine refuses a whole answer by its status, and a stream in the first event
		err = r.told()
	case stopped:
		err = r.origin.Decode.LegError(upstream.KVLoad, errors.New("decode's first event is an error"))
	case r.Over() && !unwritten:
		return nil // some clients close behind [DONE], such as the OpenAI SDKs
	case unwritten, ctx.Err() != nil && !errors.Is(context.Cause(ctx), background.ErrShuttingDown):
		return record.ErrClientGone
	case errors.Is(err, sse.ErrOversize): // how long an event is, the client decides
		err = r.garbage(upstream.ErrAnswerTooLarge)
	default:
		err = r.broken(ctx, err)
	}
	if stats := r.relay.Stats(); r.out.committed && !stats.MidEvent {
		r.out.end(r.h.deps.Errors.Map(err).Event(r.leg.API, stats.Events))
	}
	return err
}

// told returns the error that the engine has told within its answer.
func (r *reading) told() error {
	failed := r.origin.Decode.LegError(upstream.Status, nil)
	failed.Status, failed.Message = r.Fault, r.Why
	return failed
}

// broken returns the error of an answer that could not be read to its end.
func (r *reading) broken(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return r.origin.Decode.LegError(upstream.KindOf(err), err)
}

func (r *reading) garbage(err error) error { return r.origin.Decode.LegError(upstream.Garbage, err) }

package turn

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"carryover/server/answer"
	"carryover/server/background"
	"carryover/server/pick"
	"carryover/server/record"
	"carryover/server/request"
	"carryover/sse"
	"carryover/sse/rawjson"
	"carryover/upstream"
	"carryover/upstream/fleet/pairs"
)

// maxAnswer is the most bytes of a whole answer that is read.
const maxAnswer = 64 << 20

// passedAtOnce is the most bytes of an unread answer that are held.
const passedAtOnce = 32 << 10

// reading is decode's answer while it is read and sent to the client.
type reading struct {
	answer.Reader
	*decoding
	h         *Handler
	ctx       context.Context //nolint:containedctx // of the answer: what the reader tells comes without one
	turn      *turn           // whose answer it is
	out       *commitWriter
	share     request.Reservation // what is held of the answer; a usual stream holds nothing worth counting
	relay     *sse.Relay          // nil for a whole answer
	concluded bool                // the answer's ticket has been stored or given up
}

// respond sends decode's answer to the client and stores the ticket that the answer leaves. A failure before the first byte is an ordinary
// error. After the first byte the answer has broken off, and the connection must be aborted.
func (h *Handler) respond(ctx context.Context, t *turn, pair *pick.Pair, d *decoding) error {
	defer pair.Done()
	defer d.Close()
	d.leg.IDs = h.deps.Tickets.Listen(&d.origin)
	r := &reading{decoding: d, h: h, ctx: ctx, turn: t, out: t.out, share: t.share.Beside()}
	r.Reset(&d.leg, r)
	defer r.share.GiveBack()
	switch {
	case d.MediaType() == "text/event-stream":
		return r.over(r.stream())
	case t.Stream && t.out.stop(): // headers of a stream have been sent
		return r.over(r.broken(errNotStream))
	}
	return r.over(r.respondWhole())
}

// over tells the fleet how decode's leg has ended, and returns err.
func (r *reading) over(err error) error {
	told := err
	if fault, _ := r.Fault(); err == nil && fault != 0 { // the engine has told an error within its answer
		failed := r.failed(upstream.Status, nil)
		failed.Status, told = fault, failed
		r.out.record.Broke(told, r.h.deps.Errors.Map(told).Code)
	}
	r.turn.failed.unread = r.h.blameDecode(r.decoding, told, nil, false, r.out.record.ID())
	r.sent.Over(told)
	return err
}

// failed returns a failure of decode's leg.
func (d *decoding) failed(kind upstream.Kind, err error) *upstream.LegError {
	return legError(d.origin.Decode.Engine(), kind, err)
}

// Begun implements answer.Turn. It tells the fleet how long decode took from a hand-over to the first event: waiting in its queue, reading
// the KV, and one step of the engine. Without a hand-over the time depends on the prompt, so that only the record gets it.
func (r *reading) Begun() {
	r.begun = true
	r.wait.Heard()
	if r.sent.Began(); r.origin.Prefill != nil {
		r.origin.Decode.Engine().Health.Took(1, time.Since(r.origin.Began))
	}
}

// FreshAsOf implements answer.Turn.
func (r *reading) FreshAsOf() time.Time { return r.decoding.FreshAsOf() }

// Passed implements answer.Turn. It frees the request, with whose ids the first event has been compared, and sends what the
// hand-over has of the answer before that event.
func (r *reading) Passed() {
	r.turn.dropBody()
	r.taken(true)
	if head := r.head; head != nil {
		r.head = nil
		_, _ = r.out.Write(head) // the relay's write behind it fails too
	}
}

// taken notes that decode has begun an answer for which it had to take the hand-over, unless the answer is an error. What decode says before
// it has the KV does not show that it could load it.
func (r *reading) taken(loaded bool) {
	if fault, _ := r.Fault(); fault != 0 {
		return
	}
	if r.untaken = nil; r.unread && loaded {
		r.unread = false
		r.h.loads(r.decoding, pairs.Answered, r.turn.record.ID(), nil)
	}
}

// Ended implements answer.Turn.
func (r *reading) Ended() { r.keep(r.Result(false)) }

// MayRestart implements answer.Turn.
func (r *reading) MayRestart() bool {
	return !r.out.committed && !r.relay.Released() && r.turn.retries.mayRestart(upstream.RoleDecode)
}

// keep stores the ticket that the answer leaves, if it leaves one. Only the first call has an effect.
func (r *reading) keep(result answer.Result) {
	if r.concluded || result.Foreign { // the blocks of a foreign answer belong to another request
		return
	}
	r.concluded = true
	if r.relay != nil && rawjson.Kind(r.relay.Blanked()) == '{' {
		result.Params = r.relay.Blanked()
	}
	r.out.record.Stored(r.h.deps.Tickets.Keep(r.ctx, &r.origin, &r.turn.found, result, r.out.record))
}

// room adds n bytes to what the turn holds of its answer, or gives all back for 0. An answer that the connector rewrites can't pass unread,
// so that it is held without room, too.
func (r *reading) room(n int64) bool {
	if n == 0 {
		r.share.GiveBack()
		return true
	}
	return r.share.Grow(n) == nil || r.leg.Rewrite != nil
}

// respondWhole relays a JSON answer as it is, without kv_transfer_params.
func (r *reading) respondWhole() error {
	r.Spare()
	rewrite := r.leg.Rewrite
	body, err := upstream.ReadWithin(r.decoding, maxAnswer, nil, r.room)
	switch {
	case errors.Is(err, upstream.ErrAnswerTooLarge) && rewrite == nil:
		return r.passUnread(body)
	case err != nil:
		return r.broken(err)
	}
	r.wait.Heard()
	rest := r.Whole(body)
	r.out.record.Answered(r.Record(sse.Stats{}))
	result := r.Result(false)
	r.keep(result)
	switch {
	case result.Foreign:
		return r.broken(upstream.ErrForeign)
	case result.Ineligible == answer.Unparsable:
		return r.broken(errNotJSON)
	}
	r.taken(true)
	if rewrite != nil {
		whole, err := rewrite.Body(rest.Bytes())
		if err != nil {
			return r.broken(errors.Join(errNotJSON, err))
		}
		rest = rawjson.Pieces{whole}
	}
	r.turn.dropBody()
	r.out.announce("application/json", rest.Len())
	for _, piece := range rest {
		if _, err := r.out.Write(piece); err != nil {
			return record.ErrClientGone
		}
	}
	return nil
}

// passUnread passes a whole answer on as it comes, of which head has been read, with null as kv_transfer_params.
func (r *reading) passUnread(head []byte) (err error) {
	r.UnreadWhole(head)
	if r.Foreign() {
		return r.broken(upstream.ErrForeign)
	}
	r.taken(true)
	r.turn.dropBody()
	r.out.record.Answered(r.Record(sse.Stats{}))
	r.out.announce("application/json", -1)
	blanks := rawjson.Blanks{Names: r.Blank()}
	defer func() {
		result := r.Result(false)
		if rawjson.Kind(blanks.First) == '{' {
			result.Params = blanks.First
		}
		r.keep(result)
	}()
	gone := r.passOn(head, blanks.Next(head))
	r.share.GiveBack()
	for head = make([]byte, passedAtOnce); ; {
		n, err := r.Read(head)
		if blank := blanks.Next(head[:n]); gone == nil { // else the engine's blocks are all that matters
			gone = r.passOn(head[:n], blank)
		}
		switch {
		case err == nil:
		case gone != nil:
			return record.ErrClientGone
		case errors.Is(err, io.EOF):
			return nil
		default:
			return r.broken(err)
		}
	}
}

// passOn sends a part of an unread answer without blanks.
func (r *reading) passOn(part []byte, blanks []rawjson.Blank) (gone error) {
	done := 0
	for _, blank := range blanks {
		_, _ = r.out.Write(part[done:blank.From]) // the flush fails too
		if done = blank.To; blank.Begins {
			_, _ = r.out.Write([]byte("null"))
		}
	}
	_, _ = r.out.Write(part[done:])
	return r.out.Flush()
}

// stream relays events. The reader sees each event before the client does. It holds decode's first chunk back until the next event, or for
// LegConfig.FirstEvent, and the ticket is stored when it sees the end.
func (r *reading) stream() error {
	r.start()
	return r.ended(r.relay.Run(r.decoding))
}

// start makes the relay of a stream.
func (r *reading) start() {
	r.out.announceStream(r.ContentType())
	cfg := r.Relay()
	cfg.Patience, cfg.Memory, cfg.Room = r.h.cfg.FirstEvent, &r.h.streamed, r.room
	d, observe := r.decoding, cfg.Observe
	cfg.Observe = func(e sse.Event) sse.Verdict {
		if d.begun {
			d.wait.Heard()
		}
		return observe(e)
	}
	r.relay = sse.New(r.out, r.out.Flush, cfg)
}

// ended returns the turn's error for the way in which the relay ended, nil for a complete answer.
func (r *reading) ended(err error) error {
	r.out.record.Answered(r.Record(r.relay.Stats()))
	unwritten, abandoned := writeFailed(err), errors.Is(context.Cause(r.ctx), background.ErrShuttingDown)
	gone := unwritten || r.ctx.Err() != nil && !abandoned
	left := err != nil && (gone || abandoned) // decode may have had more to send
	if left && r.Seen() {                     // the event that waits for the next one
		r.taken(false)
	}
	r.keep(r.Result(left)) // does nothing if the end was seen, because the ticket was stored then
	stopped, fault, why := errors.Is(err, sse.ErrStopped) && !r.Unwritable(), 0, ""
	if stopped {
		fault, why = r.Fault()
	}
	if stopped && r.Foreign() {
		err, stopped = upstream.ErrForeign, false
	}
	switch {
	case err == nil:
		if !r.out.committed { // an empty stream
			r.out.commit()
		}
		return nil
	case fault == http.StatusServiceUnavailable:
		// An engine refuses a stream in its first event, where it would refuse a whole answer by its status.
		refused := r.failed(upstream.Status, errKVLoad)
		refused.Status, refused.Message = fault, why
		return refused
	case stopped:
		return r.failed(upstream.KVLoad, errKVLoad)
	case r.Over() && !unwritten:
		return nil // some clients close behind [DONE], such as the OpenAI SDKs
	case gone:
		return record.ErrClientGone
	}
	if r.Unwritable() {
		err = errUnwritable
	}
	broken := r.broken(err)
	if r.out.committed && !r.relay.Stats().MidEvent {
		r.out.lastWords(broken, r.relay.Stats().Events)
	}
	return broken
}

// writeFailed reports whether the reading of a stream ended because the client could not be written to.
func writeFailed(err error) bool {
	if err == nil {
		return false
	}
	var write *sse.WriteError
	return errors.As(err, &write)
}

// Why an answer can't be given to a client.
var (
	errKVLoad  = errors.New("decode's first event is an error")
	errNotJSON = errors.New("the answer is not JSON")
	// errNotStream is about an answer to a client that has had heartbeats.
	errNotStream = errors.New("the answer is no stream")
	// errUnwritable says that the connector has rewritten an event into something that can't be sent.
	errUnwritable = errors.New("an event can't be written")
)

// broken returns the error of an answer that could not be read to its end.
func (r *reading) broken(err error) error {
	if r.ctx.Err() != nil {
		return context.Cause(r.ctx)
	}
	kind := upstream.Broken
	switch {
	case errors.Is(err, upstream.ErrForeign):
		return r.h.foreign(r.origin.Decode.Engine())
	case upstream.IsTimeout(err):
		kind = upstream.Timeout
	case errors.Is(err, upstream.ErrAnswerTooLarge), errors.Is(err, sse.ErrOversize), errors.Is(err, errNotJSON), errors.Is(err, errNotStream), errors.Is(err, errUnwritable):
		kind = upstream.Garbage
	}
	return r.failed(kind, err)
}

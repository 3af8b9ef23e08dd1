package server

import (
	"context"
	"errors"
	"io"
	"net/http"

	"carryover/server/record"
	"carryover/sse"
	"carryover/upstream"
	"carryover/upstream/body"
)

// maxAnswer is the most bytes of a whole answer.
const maxAnswer = 64 << 20

// idBytes is the most bytes that an id takes in the first chunk, with its comma. Ids of real vocabularies have six digits at most.
const idBytes = 8

const paramsMember = "kv_transfer_params"

// respond sends decode's answer to the client and stores the ticket that the answer leaves. A failure before the first byte is an ordinary
// error. After the first byte the answer has broken off, and the connection must be aborted.
func (s *turns) respond(ctx context.Context, out *commitWriter, t *turn, d *decoding) error {
	if d.Stream == nil { // the client has its whole answer already
		return nil
	}
	ctx = d.context(ctx)
	fault, err := 0, error(nil) // fault is the status in the error that the engine has told within the answer
	switch {
	case d.MediaType() == "text/event-stream":
		fault, err = s.respondStream(ctx, out, t, d)
	case d.asks.whole:
		fault, err = s.respondBuffered(ctx, out, t, d)
	default:
		fault, err = s.respondWhole(ctx, out, t, d)
	}
	d.over(t, fault, err)
	return err
}

// over tells the fleet and the record how the answer ended.
func (d *decoding) over(t *turn, fault int, err error) {
	told := d.told(fault, err)
	t.ended(d.incarnation.Engine(), told)
	d.sent.Over(told)
}

// respondWhole relays a JSON answer as it is, without kv_transfer_params.
func (s *turns) respondWhole(ctx context.Context, out *commitWriter, t *turn, d *decoding) (fault int, _ error) {
	d.Spare()
	body, err := upstream.ReadAll(d, maxAnswer)
	if err != nil {
		return 0, s.brokenAnswer(ctx, d, err)
	}
	a := newAnswer(t, d)
	rest := a.whole(body)
	t.record.Answered(a.record(sse.Stats{}))
	s.tickets.keep(ctx, t, a)
	switch {
	case a.foreign:
		return 0, s.brokenAnswer(ctx, d, upstream.ErrForeign)
	case a.ineligible == unparsable:
		return 0, s.brokenAnswer(ctx, d, errNotJSON)
	}
	if s.cfg.ExposeParams && a.dialect == nil {
		rest = body
	}
	if d.rewrite != nil {
		if rest, err = d.rewrite.Body(rest); err != nil {
			return 0, s.brokenAnswer(ctx, d, errors.Join(errNotJSON, err))
		}
	}
	out.announce("application/json", len(rest))
	if _, err := out.Write(rest); err != nil {
		return 0, record.ErrClientGone
	}
	return a.fault, nil
}

// streaming is an answer while it is relayed as a stream.
type streaming struct {
	answer
	turns     *turns
	out       *commitWriter
	relay     *sse.Relay
	substance [3]string // members of which an event must have one to be sent; an array here saves each stream an allocation
}

// respondStream relays events. The observer sees each event before the client does. It holds decode's first chunk back until the next event,
// and stores the ticket when it sees the end.
func (s *turns) respondStream(ctx context.Context, out *commitWriter, t *turn, d *decoding) (fault int, err error) {
	r := s.streaming(ctx, out, t, d)
	var from io.Reader = d
	if r.dialect != nil {
		from = &toTheEnd{Reader: d, over: &r.over}
	}
	err = r.ended(ctx, r.relay.Run(from))
	return r.fault, err
}

func (s *turns) streaming(ctx context.Context, out *commitWriter, t *turn, d *decoding) *streaming {
	r := &streaming{turns: s, out: out, substance: [...]string{"choices", "usage", "error"}}
	r.of(t, d)
	r.atEnd = func() { r.keep(ctx) }
	r.mayRestart = func() bool { return !t.committed && s.mayRestart(t, upstream.RoleDecode) }
	out.announceStream(d.ContentType())
	cfg := sse.Config{
		Strip:     paramsMember,
		Expose:    s.cfg.ExposeParams,
		Substance: r.substance[:],
		MaxEvent:  sse.DefaultMaxEvent + idBytes*t.ids.Len(),
		// Comments before decode's first event are held back too, as long as the turn can be tried again after a failed load.
		EventFirst: !t.committed,
		Memory:     &s.streamed,
		Begin:      r.begin,
		Observe:    r.observe,
	}
	if r.dialect != nil { // every event of a dialect matters
		cfg.Substance = nil
	}
	if t.api == body.Responses {
		cfg.MaxEvent, cfg.Bounded = maxResponseEvent, true
	}
	r.relay = sse.New(out, out.Flush, cfg)
	return r
}

// keep stores the ticket that the answer leaves, if it leaves one.
func (r *streaming) keep(ctx context.Context) {
	if r.relay.Stats().Oversize > 0 { // the observer has not seen all of the reply
		r.takes("oversize")
	}
	r.turns.tickets.keep(ctx, r.turn, &r.answer)
}

// ended returns the turn's error for the way in which the relay ended, nil for a complete answer.
func (r *streaming) ended(ctx context.Context, err error) error {
	s, t, d := r.turns, r.turn, r.decoding
	t.record.Answered(r.record(r.relay.Stats()))
	var write *sse.WriteError
	gone := clientLeft(ctx, err)
	r.left = leftEarly(ctx, err)
	if !r.first {
		d.leavesUnread()
	}
	r.keep(ctx) // does nothing if the end was seen, because the ticket was stored then
	switch {
	case err == nil:
		if !t.committed { // an empty stream
			r.out.commit()
		}
		return nil
	case r.foreign && !t.committed:
		return s.brokenAnswer(ctx, d, upstream.ErrForeign)
	case errors.Is(err, sse.ErrStopped) && !r.unwritable && r.fault == http.StatusServiceUnavailable:
		// An engine refuses a stream in its first event, where it would refuse a whole answer by its status.
		return &upstream.LegError{
			Role: upstream.RoleDecode, Instance: d.incarnation.Engine().Name, Kind: upstream.Status, Status: r.fault, Sent: true,
			Fault: upstream.Fault{Message: r.why}, Err: errKVLoad,
		}
	case errors.Is(err, sse.ErrStopped) && !r.unwritable:
		return &upstream.LegError{Role: upstream.RoleDecode, Instance: d.incarnation.Engine().Name, Kind: upstream.KVLoad, Sent: true, Err: errKVLoad}
	case r.done && !errors.As(err, &write) && (r.over || r.dialect == nil):
		return nil // some clients close behind [DONE], such as the OpenAI SDKs
	case gone:
		return record.ErrClientGone
	}
	if r.unwritable {
		err = errUnwritable
	}
	broken := s.brokenAnswer(ctx, d, err)
	if t.committed && !r.relay.Stats().MidEvent {
		r.out.lastWords(broken, r.relay.Stats().Events)
	}
	return broken
}

// Why an answer can't be given to a client.
var (
	errKVLoad  = errors.New("decode's first event is an error")
	errNotJSON = errors.New("the answer is not JSON")
	// errUnwritable says that the connector has rewritten an event into something that can't be sent.
	errUnwritable = errors.New("an event can't be written")
)

// brokenAnswer returns the error of an answer that could not be read to its end.
func (s *turns) brokenAnswer(ctx context.Context, d *decoding, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	leg := &upstream.LegError{Role: upstream.RoleDecode, Instance: d.incarnation.Engine().Name, Kind: upstream.Broken, Sent: true, Err: err}
	switch {
	case errors.Is(err, upstream.ErrForeign):
		s.deps.Legs.Close() // the connection that is out of step is among them
	case upstream.IsTimeout(err):
		leg.Kind = upstream.Timeout
	case errors.Is(err, upstream.ErrAnswerTooLarge), errors.Is(err, sse.ErrOversize), errors.Is(err, errNotJSON), errors.Is(err, errUnwritable):
		leg.Kind = upstream.Garbage
	}
	return leg
}

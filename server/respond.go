package server

import (
	"context"
	"errors"

	"carryover/sse"
	"carryover/upstream"
)

// maxAnswer bounds a non-stream answer.
const maxAnswer = 64 << 20

// idBytes is the most that an id of the first chunk takes, its comma included; ids
// of real vocabularies have six digits at most.
const idBytes = 8

const paramsMember = "kv_transfer_params"

// respond brings decode's answer to the client and keeps what it leaves behind.
// Before the first byte is sent, a failure is an ordinary error; after it, the
// answer has broken off and the connection must be aborted.
func (s *turns) respond(ctx context.Context, out *outlet, t *turn, d *decoding) error {
	if d.Stream == nil { // the client has it all
		return nil
	}
	err := s.bring(d.context(ctx), out, t, d)
	told := d.told(t.record.Answer.Fault, err)
	t.ended(d.start.Engine(), told)
	d.sent.over(told)
	return err
}

// bring brings an answer in the way that its media type and what was asked for want.
func (s *turns) bring(ctx context.Context, out *outlet, t *turn, d *decoding) error {
	switch {
	case d.MediaType() == "text/event-stream":
		return s.respondStream(ctx, out, t, d)
	case d.asks.whole:
		return s.respondBuffered(ctx, out, t, d)
	}
	return s.respondWhole(ctx, out, t, d)
}

// respondWhole relays a JSON answer as it is, without kv_transfer_params.
func (s *turns) respondWhole(ctx context.Context, out *outlet, t *turn, d *decoding) error {
	d.Spare()
	body, err := upstream.ReadAll(d, maxAnswer)
	if err != nil {
		return s.brokenAnswer(ctx, d, err)
	}
	a := newAnswer(t, d)
	rest := a.whole(body)
	t.record.Answer = a.record(sse.Stats{})
	s.keeper.keep(ctx, t, a)
	switch {
	case a.foreign:
		return s.brokenAnswer(ctx, d, errForeign)
	case a.odd == unparsable:
		return s.brokenAnswer(ctx, d, errNotJSON)
	}
	if s.cfg.ExposeParams {
		rest = body
	}
	if d.rewrite != nil {
		if rest, err = d.rewrite.Body(rest); err != nil {
			return s.brokenAnswer(ctx, d, errors.Join(errNotJSON, err))
		}
	}
	out.announce("application/json", len(rest))
	if _, err := out.Write(rest); err != nil {
		return errClientGone
	}
	return nil
}

// respondStream relays events. The observer sees each before the client does: it
// holds decode's first chunk until the next event, and puts the ticket when it
// sees the end.
func (s *turns) respondStream(ctx context.Context, out *outlet, t *turn, d *decoding) error {
	a := newAnswer(t, d)
	var relay *sse.Relay
	keep := func() {
		if relay.Stats().Oversize > 0 { // the observer has not seen all of the reply
			a.takes("oversize")
		}
		s.keeper.keep(ctx, t, a)
	}
	a.atEnd = keep
	a.mayRestart = func() bool { return !t.committed && s.mayRestart(t, upstream.RoleDecode) }
	out.announceStream(d.ContentType())
	relay = sse.New(out, out.Flush, sse.Config{
		Strip:     paramsMember,
		Expose:    s.cfg.ExposeParams,
		Substance: []string{"choices", "usage", "error"},
		MaxEvent:  sse.DefaultMaxEvent + idBytes*t.ids.Len(),
		Begin:     a.begin,
		Observe:   a.observe,
	})
	err := relay.Run(d)
	t.record.Answer = a.record(relay.Stats())
	var write *sse.WriteError
	gone := errors.As(err, &write) || ctx.Err() != nil && !errors.Is(context.Cause(ctx), errShuttingDown) && legErrorOf(ctx) == nil
	a.left = err != nil && (gone || ctx.Err() != nil)
	keep() // unless the end was seen, and that was done
	switch {
	case err == nil:
		if !t.committed { // an empty stream
			out.commit()
		}
		return nil
	case a.foreign && !t.committed:
		return s.brokenAnswer(ctx, d, errForeign)
	case errors.Is(err, sse.ErrStopped) && !a.unwritable:
		return &upstream.LegError{Role: upstream.RoleDecode, Instance: d.start.Engine().Name, Kind: upstream.KVLoad, Sent: true, Err: errKVLoad}
	case a.done && write == nil:
		return nil // clients close behind [DONE], the OpenAI SDKs among them
	case gone:
		return errClientGone
	}
	if a.unwritable {
		err = errUnwritable
	}
	broken := s.brokenAnswer(ctx, d, err)
	if t.committed && !relay.Stats().MidEvent {
		out.lastWords(broken)
	}
	return broken
}

// What an answer is that can't be given to a client.
var (
	errKVLoad  = errors.New("decode's first event is an error")
	errNotJSON = errors.New("the answer is not JSON")
	// errUnwritable is an event that the connector makes of decode's, and that is none.
	errUnwritable = errors.New("an event can't be written")
	// errForeign is an answer that belongs to another request. It comes of a connection
	// that is out of step, and must reach no client.
	errForeign = errors.New("the answer is that of another request")
)

// brokenAnswer says how reading an answer failed.
func (s *turns) brokenAnswer(ctx context.Context, d *decoding, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	leg := &upstream.LegError{Role: upstream.RoleDecode, Instance: d.start.Engine().Name, Kind: upstream.Broken, Sent: true, Err: err}
	switch {
	case errors.Is(err, errForeign):
		s.deps.Legs.Close() // the connection that is out of step is among them
	case upstream.IsTimeout(err):
		leg.Kind = upstream.Timeout
	case errors.Is(err, upstream.ErrAnswerTooLarge), errors.Is(err, errNotJSON), errors.Is(err, errUnwritable):
		leg.Kind = upstream.Garbage
	}
	return leg
}

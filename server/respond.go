package server

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

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
func (s *Server) respond(ctx context.Context, w http.ResponseWriter, t *turn, d *decoding) error {
	out := &outlet{server: s, turn: t, w: w, control: http.NewResponseController(w)}
	var err error
	switch {
	case d.MediaType() == "text/event-stream":
		err = s.respondStream(ctx, t, d, out)
	case d.buffered:
		err = s.respondBuffered(ctx, t, d, out)
	default:
		err = s.respondWhole(ctx, t, d, out)
	}
	if err != nil && t.committed {
		return &abortError{err}
	}
	return err
}

// respondWhole relays a JSON answer as it is, without kv_transfer_params.
func (s *Server) respondWhole(ctx context.Context, t *turn, d *decoding, out *outlet) error {
	d.Spare()
	body, err := upstream.ReadAll(d, maxAnswer)
	if err != nil {
		return s.brokenAnswer(ctx, d, err)
	}
	a := s.newAnswer(t, d)
	rest := a.whole(body)
	s.keep(ctx, t, a)
	switch {
	case a.foreign:
		return s.brokenAnswer(ctx, d, errForeign)
	case a.odd == unparsable:
		return s.brokenAnswer(ctx, d, errNotJSON)
	}
	if s.cfg.ExposeParams {
		rest = body
	}
	out.header().Set("Content-Type", "application/json")
	out.header().Set("Content-Length", strconv.Itoa(len(rest)))
	if _, err := out.Write(rest); err != nil {
		return errClientGone
	}
	return nil
}

// respondStream relays events. The observer sees each before the client does: it
// holds decode's first chunk until the next event, and puts the ticket when it
// sees the end.
func (s *Server) respondStream(ctx context.Context, t *turn, d *decoding, out *outlet) error {
	a := s.newAnswer(t, d)
	a.atEnd = func() { s.keep(ctx, t, a) }
	a.mayRestart = func() bool { return s.mayRestart(t, upstream.RoleDecode) }
	out.announceStream(d.ContentType())
	relay := sse.New(out, out.Flush, sse.Config{
		Strip:     paramsMember,
		Expose:    s.cfg.ExposeParams,
		Substance: []string{"choices", "usage", "error"},
		MaxEvent:  sse.DefaultMaxEvent + idBytes*len(t.tokens.ids),
		Begin:     a.begin,
		Observe:   a.observe,
	})
	err := relay.Run(d)
	t.receipt.events, t.receipt.bytes = relay.Stats().Events, relay.Stats().Bytes
	var write *sse.WriteError
	gone := errors.As(err, &write) || ctx.Err() != nil && !errors.Is(context.Cause(ctx), errShuttingDown)
	a.left = err != nil && (gone || ctx.Err() != nil)
	s.keep(ctx, t, a) // unless the end was seen, and that was done
	switch {
	case err == nil:
		if !t.committed { // an empty stream
			out.commit()
		}
		return nil
	case a.foreign && !t.committed:
		return s.brokenAnswer(ctx, d, errForeign)
	case errors.Is(err, sse.ErrStopped):
		return &upstream.LegError{Role: upstream.RoleDecode, Instance: d.instance.Name, Kind: upstream.KVLoad, Sent: true, Err: errKVLoad}
	case a.done && write == nil:
		return nil // clients close behind [DONE], the OpenAI SDKs among them
	case gone:
		return errClientGone
	}
	broken := s.brokenAnswer(ctx, d, err)
	if t.committed && !relay.Stats().MidEvent {
		out.lastWords(s.toAPIError(broken))
	}
	return broken
}

// What an answer is that can't be given to a client.
var (
	errKVLoad  = errors.New("decode's first event is an error")
	errNotJSON = errors.New("the answer is not JSON")
)

// brokenAnswer says how reading an answer failed.
func (s *Server) brokenAnswer(ctx context.Context, d *decoding, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	leg := &upstream.LegError{Role: upstream.RoleDecode, Instance: d.instance.Name, Kind: upstream.Broken, Sent: true, Err: err}
	switch {
	case errors.Is(err, errForeign):
		s.deps.Engine.Close() // the connection that is out of step is among them
	case upstream.IsTimeout(err):
		leg.Kind = upstream.Timeout
	case errors.Is(err, upstream.ErrAnswerTooLarge), errors.Is(err, errNotJSON):
		leg.Kind = upstream.Garbage
	}
	return leg
}

// outlet is the client's side of an answer. The first write commits.
type outlet struct {
	server  *Server
	turn    *turn
	w       http.ResponseWriter
	control *http.ResponseController
}

func (o *outlet) header() http.Header { return o.w.Header() }

// announceStream sets the headers of an event stream.
func (o *outlet) announceStream(contentType string) {
	o.header().Set("Content-Type", contentType)
	o.header().Set("Cache-Control", "no-cache")
	o.header().Set("X-Accel-Buffering", "no")
}

// commit sends status and headers: from here on nothing can be tried again.
func (o *outlet) commit() {
	t := o.turn
	t.committed = true
	t.dropBody()
	t.receipt.status = http.StatusOK
	t.receipt.ttft = time.Since(t.began)
	o.server.turnHeaders(o.header(), t)
	o.w.WriteHeader(http.StatusOK)
}

// Write implements io.Writer. Each write gets its own deadline: a client that does
// not read must not hold an engine, and a stream may last for hours.
func (o *outlet) Write(p []byte) (int, error) {
	if !o.turn.committed {
		o.commit()
	}
	if err := o.control.SetWriteDeadline(time.Now().Add(o.server.cfg.ClientWriteTimeout)); err != nil {
		return 0, err
	}
	return o.w.Write(p)
}

// Flush sends what was written.
func (o *outlet) Flush() error { return o.control.Flush() }

// lastWords tells the client of a stream what broke it. No [DONE] follows, and the
// connection is aborted, so that no client takes the answer for complete.
func (o *outlet) lastWords(e *apiError) {
	if _, err := o.Write(sse.AppendError(nil, e.body())); err == nil {
		_ = o.Flush()
	}
}

var _ io.Writer = (*outlet)(nil)

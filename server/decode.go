package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"time"

	"carryover/upstream"
)

// detachedLimit bounds the work that is done for a client that has gone.
const detachedLimit = 10 * time.Second

// decoding is a decode leg whose headers have arrived.
type decoding struct {
	*upstream.Stream
	response *http.Response
	instance *upstream.Instance
	handover handover
	unwatch  func() bool
}

// Close ends the leg.
func (d *decoding) Close() {
	d.unwatch()
	_ = d.Stream.Close()
}

// decode sends the hand-over to exactly one decode instance and returns when its
// headers have arrived. While connections are refused, nothing was sent, and the
// same hand-over may go to another instance within the hand-over budget: in pull
// mode prefill's blocks are bound to no particular reader.
func (s *Server) decode(ctx context.Context, t *turn, p *pair, h handover) (*decoding, error) {
	body := t.req.DecodeBody(upstream.DecodeEdit{Params: h.params, CacheSalt: t.salt})
	instance := p.decode
	var exclude []string
	for {
		d, err := s.decodeOn(ctx, t, instance, body, h)
		var leg *upstream.LegError
		if err == nil || !errors.As(err, &leg) || leg.Sent || leg.Kind != upstream.Dial {
			return d, err
		}
		s.deps.Pool.Report(instance, true)
		exclude = append(exclude, instance.Name)
		next, release, noneErr := s.deps.Pool.Acquire(upstream.RoleDecode, t.conversation.affinity(), exclude)
		if noneErr != nil || len(exclude) == maxDials || h.params != nil && time.Now().After(h.until) {
			if noneErr == nil {
				release()
			}
			return nil, err
		}
		p.releases = append(p.releases, release)
		instance = next
	}
}

// decodeOn runs the decode leg on one instance. Its context is detached from the
// client: once decode has the hand-over it must reach its first event, because a
// request that is aborted before it was scheduled leaves prefill's blocks
// stranded until their lease ends, and breaks some connectors (vLLM #50425).
func (s *Server) decodeOn(ctx context.Context, t *turn, instance *upstream.Instance, body []byte, h handover) (*decoding, error) {
	detached, stream := upstream.Guard(context.WithoutCancel(ctx), s.cfg.FirstByteTimeout)
	d := &decoding{Stream: stream, instance: instance, handover: h}
	d.unwatch = context.AfterFunc(ctx, func() {
		limit := detachedLimit
		if errors.Is(context.Cause(ctx), errShuttingDown) {
			limit = abandonDelay / 2 // the client is still there and wants to be told
		}
		stream.Abandon(context.Cause(ctx), limit)
	})
	t.receipt.decode, t.receipt.legs = instance.Name, t.receipt.legs+1
	//nolint:bodyclose // the Stream owns the body and closes it
	response, err := s.deps.Engine.Decode(detached, upstream.Leg{
		Instance: instance, API: t.api, Body: body, RequestID: t.legID, Authorization: t.authorization,
	})
	if err != nil {
		d.Close()
		return nil, err
	}
	s.deps.Pool.Report(instance, false)
	d.response = response
	stream.Attach(response.Body, s.cfg.IdleTimeout)
	return d, nil
}

// strand keeps prefill's blocks from being stranded when the client left between
// the legs: decode reads them for an answer of one token, which nobody sees. It
// runs on its own, so that the handler can end.
func (s *Server) strand(ctx context.Context, t *turn, p *pair, h handover) {
	if h.params == nil {
		return
	}
	body := t.req.DecodeBody(upstream.DecodeEdit{Params: h.params, CacheSalt: t.salt, OneToken: true})
	leg := upstream.Leg{Instance: p.decode, API: t.api, Body: body, RequestID: t.legID, Authorization: t.authorization}
	ctx = context.WithoutCancel(ctx)
	s.detached.Go(func() {
		defer func() {
			if p := recover(); p != nil { // nobody above would
				s.cfg.Logger.Error("panic after a turn", "turn", t.id, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			}
		}()
		ctx, cancel := context.WithTimeoutCause(ctx, detachedLimit, upstream.ErrFirstByteTimeout)
		defer cancel()
		response, err := s.deps.Engine.Decode(ctx, leg)
		if err == nil {
			_, err = upstream.ReadAll(response.Body, maxAnswer)
			_ = response.Body.Close()
		}
		if err != nil {
			s.cfg.Logger.Warn("prefill's blocks wait for their lease to end", "turn", t.id, "decode", leg.Instance.Name, "error", err)
		}
	})
}

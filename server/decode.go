package server

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"carryover/sse"
	"carryover/upstream"
)

// detachedLimit bounds the work that is done for a client that has gone.
const detachedLimit = 10 * time.Second

// decoding is a decode leg whose headers have arrived. It lives as long as the
// stream, and holds nothing of the prompt.
type decoding struct {
	*upstream.Stream
	arrived  time.Time // when the stream was caught up with the headers
	instance *upstream.Instance
	handed   bool           // decode got a hand-over
	barred   bool           // of a prefill instance that is barred
	carrier  carrier        // the instances that have exchanged KV by it
	facts    upstream.Facts // the start of decode that has the leg
	collects bool           // decode was asked for token ids: there is no plug-in to bring them
	asked    bool           // and the client did not ask for them itself
	counts   bool           // decode was asked for its usage, and the client did not ask for it itself
	buffered bool           // decode was asked for a whole answer, the client for a stream
}

// decode sends the hand-over to exactly one decode instance and returns when its
// headers have arrived. While connections are refused, nothing was sent, and the
// same hand-over may go to another instance within the hand-over budget: in pull
// mode prefill's blocks are bound to no particular reader.
func (s *Server) decode(ctx context.Context, t *turn, p *pair, h handover) (*decoding, error) {
	instance := p.decode
	var exclude []string
	for {
		d, err := s.decodeOn(ctx, t, p, instance, h)
		var leg *upstream.LegError
		if err == nil || !errors.As(err, &leg) || leg.Sent || leg.Kind != upstream.Dial {
			return d, err
		}
		s.refused(instance)
		exclude = append(exclude, instance.Name)
		next, release, noneErr := s.deps.Pool.Acquire(upstream.RoleDecode, t.conversation.affinity(), exclude)
		if noneErr != nil || len(exclude) == maxDials || h.answered != nil && time.Now().After(h.until) {
			if noneErr == nil {
				release()
			}
			return nil, err
		}
		p.releases = append(p.releases, release)
		instance = next
	}
}

// decodeOn runs the decode leg on one instance.
func (s *Server) decodeOn(ctx context.Context, t *turn, p *pair, instance *upstream.Instance, h handover) (*decoding, error) {
	facts := s.decodeFacts(t, p, instance)
	edit, err := s.decodeEdit(t, h)
	if err != nil {
		return nil, err
	}
	edit.Whole = s.buffers(t, h)
	edit.ReturnTokenIDs = t.tokens.wanted && s.deps.Capability.PlugIn(instance, facts.Incarnation) != upstream.Yes
	edit.Usage = t.tokens.wanted && t.stream && !edit.Whole && !t.req.WantsUsage() && !s.cfg.ExposeParams
	body := t.req.DecodeBody(edit)
	d := &decoding{
		instance: instance, facts: facts, handed: h.answered != nil, barred: p.barred, buffered: edit.Whole, counts: edit.Usage,
		collects: edit.ReturnTokenIDs, asked: edit.ReturnTokenIDs && !t.req.WantsTokenIDs(),
	}
	if d.handed {
		d.carrier = carrierOf(h.from, instance, starts{p.starts.prefill, facts})
	}
	t.receipt.decode, t.receipt.legs = instance.Name, t.receipt.legs+1
	d.Stream, err = s.deps.Engine.Decode(ctx, upstream.Leg{
		Instance: instance, API: t.api, Body: body, RequestID: t.legID, Authorization: t.authorization,
	}, upstream.Limits{FirstByte: s.cfg.FirstByteTimeout, Idle: s.cfg.IdleTimeout, Gone: abandonLimit})
	if err != nil {
		return nil, err
	}
	s.deps.Pool.Report(instance, false)
	d.arrived = d.CaughtUp()
	return d, nil
}

// abandonLimit is how long decode may take to begin its answer once the turn has
// ended for that cause.
func abandonLimit(cause error) time.Duration {
	if errors.Is(cause, errShuttingDown) {
		return abandonDelay / 2 // the client is still there and wants to be told
	}
	return detachedLimit
}

// decodeFacts says which start of an instance gets the leg, without asking: prefill's
// blocks are leased. The ids of a chat prompt go only to one that uses them; another
// than the one that was picked may not.
func (s *Server) decodeFacts(t *turn, p *pair, instance *upstream.Instance) upstream.Facts {
	if instance == p.decode {
		return p.starts.decode
	}
	facts := s.knownStart(instance)
	if t.tokens.wanted && !s.knownToUseIDs(t, instance, facts) {
		t.tokens.lost(whyProbe)
	}
	return facts
}

// decodeEdit is what the decode leg adds to the client's request: the hand-over,
// and the ids that prefill computed, so that decode can't render anything else and
// need not tokenise again.
func (s *Server) decodeEdit(t *turn, h handover) (upstream.DecodeEdit, error) {
	edit := upstream.DecodeEdit{CacheSalt: t.salt}
	var ids []byte
	if t.tokens.wanted || t.tokens.sent {
		edit.PromptIDs, ids = t.tokens.raw, t.tokens.raw
	}
	if h.answered == nil {
		return edit, nil
	}
	if t.api == upstream.Text {
		ids = nil
	}
	var err error
	edit.Params, _, err = s.deps.Connector.DecodeParams(h.answered, ids, h.from)
	return edit, err
}

// strand keeps prefill's blocks from being stranded when the client left between
// the legs: decode reads them for an answer of one token, which nobody sees, and
// whose own blocks are released. It runs on its own, so that the handler can end.
func (s *Server) strand(ctx context.Context, t *turn, p *pair, h handover) {
	if h.answered == nil {
		return
	}
	facts := s.decodeFacts(t, p, p.decode)
	edit, err := s.decodeEdit(t, h)
	if err != nil {
		return
	}
	edit.OneToken = true
	leg := upstream.Leg{Instance: p.decode, API: t.api, Body: t.req.DecodeBody(edit), RequestID: t.legID, Authorization: t.authorization}
	model := t.req.Model()
	ctx = context.WithoutCancel(ctx)
	s.detached.Go(func() {
		defer s.survive("turn", t.id)
		ctx, cancel := context.WithTimeoutCause(ctx, detachedLimit, upstream.ErrFirstByteTimeout)
		defer cancel()
		began := time.Now()
		answer, err := s.readWhole(ctx, leg)
		if err != nil {
			s.cfg.Logger.Warn("prefill's blocks wait for their lease to end", "turn", t.id, "decode", leg.Instance.Name, "error", err)
			return
		}
		s.releases.met(carrierOf(h.from, p.decode, p.starts))
		s.unuseParams(answer, leftover{decode: p.decode, incarnation: facts.Incarnation, model: model, caughtUp: began})
	})
}

// readWhole runs a decode leg whose answer nobody waits for, and returns its
// kv_transfer_params.
func (s *Server) readWhole(ctx context.Context, leg upstream.Leg) ([]byte, error) {
	stream, err := s.deps.Engine.Decode(ctx, leg, upstream.Limits{FirstByte: detachedLimit, Idle: detachedLimit})
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	body, err := upstream.ReadAll(stream, maxAnswer)
	if err != nil {
		return nil, err
	}
	_, params, _ := sse.Cut(body, paramsMember)
	return params, nil
}

// survive keeps a defect in work that outlives its turn from ending the process.
// It is deferred.
func (s *Server) survive(what, id string) {
	if p := recover(); p != nil {
		s.cfg.Logger.Error("panic after a turn", what, id, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
	}
}

package server

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"carryover/convcache"
	"carryover/upstream"
)

// leftover says where an answer's blocks are.
type leftover struct {
	decode      *upstream.Instance
	incarnation string
	model       string
	caughtUp    time.Time
}

// spent notes that a ticket was sent: whatever names its blocks from now on is not to be believed.
func (s *Server) spent(ticket convcache.Ticket) {
	if kept, err := s.deps.Connector.Keep(ticket.Params); err == nil {
		s.blocks.unuse(ticket.Decode, kept)
	}
}

// unuse gives up a ticket that was removed from the store, or never got there.
func (s *Server) unuse(t *turn, ticket convcache.Ticket) {
	kept, err := s.deps.Connector.Keep(ticket.Params)
	if err != nil {
		return // of an older or a foreign version; no engine would understand it either
	}
	s.giveUp(kept, unused{params: ticket.Params, decode: ticket.Decode, incarnation: ticket.Incarnation, model: t.model, deadline: ticket.Deadline})
}

// unuseParams gives up decode's answer, if it is one that holds blocks.
func (s *Server) unuseParams(params []byte, left leftover) {
	if params == nil {
		return
	}
	kept, err := s.deps.Connector.Keep(params)
	if err != nil || !s.blocks.fresh(left.decode.Name, kept) {
		return // none, or there is a ticket for them
	}
	s.giveUp(kept, unused{
		params: kept.Params, decode: left.decode.Name, incarnation: left.incarnation, model: left.model,
		deadline: s.deadline(left.decode, left.caughtUp, kept.Expires),
	})
}

// giveUp has blocks released that no ticket names any more, once.
func (s *Server) giveUp(kept upstream.Kept, u unused) {
	if !s.blocks.unuse(u.decode, kept) {
		s.cfg.Logger.Error("two tickets name the same blocks; one is dropped", "decode", u.decode)
		return
	}
	if s.cfg.Release {
		s.releases.add(u)
	}
}

// carry puts an unused ticket on a prefill leg that has none of its own. Prefill
// reads nothing of it and tells decode to free the blocks (measured on vLLM 0.32:
// within a second, at no cost to the request).
func (s *Server) carry(t *turn, p *pair, h *held, params []byte) []byte {
	if !s.cfg.Release || t.withoutRelease {
		return params
	}
	for _, decode := range s.releases.waiting() {
		u, pair, ok := s.takeUnused(p.prefill, decode, false, s.lastStart)
		if !ok {
			continue
		}
		if carried, err := s.releaseParams(u); err == nil {
			h.release, h.carrier = &u, pair
			return carried
		}
	}
	return params
}

// takeUnused takes a ticket that a leg to prefill may carry to a decode instance, both in the starts that startOf tells.
func (s *Server) takeUnused(prefill *upstream.Instance, decode string, own bool, startOf func(*upstream.Instance) upstream.Facts) (unused, carrier, bool) {
	holder := s.instance(upstream.RoleDecode, decode)
	if holder == nil {
		return unused{}, carrier{}, false
	}
	starts := starts{startOf(prefill), startOf(holder)}
	c := carrierOf(prefill, holder, starts)
	u, ok := s.releases.take(c, decode, starts.decode.Incarnation, own)
	return u, c, ok
}

// releaseFailed deals with an unused ticket whose leg failed: unsent or refused it
// waits on; else it is gone, and so is the pair's turn at releasing for a while.
func (s *Server) releaseFailed(h *held, leg *upstream.LegError) {
	switch {
	case h.release == nil:
	case !leg.Sent:
		s.releases.add(*h.release)
	case leg.Kind == upstream.Gone:
	case leg.Kind == upstream.Status && leg.Status < http.StatusInternalServerError:
		// The engine refused the request before it was scheduled, most likely for what the
		// client sent. Were it for the release, that would fail every turn that carries it.
		h.release.refused = true
		s.releases.add(*h.release)
	default:
		s.releases.failed(h.carrier)
	}
}

func (s *Server) releaseParams(u unused) ([]byte, error) {
	holder := s.instance(upstream.RoleDecode, u.decode)
	if holder == nil {
		return nil, upstream.ErrNoInstance
	}
	return s.deps.Connector.PrefillParams(upstream.TicketOffer{Ticket: u.params, Holder: holder, Release: true})
}

// instance returns the configured instance of that role and name, nil if there is
// none.
func (s *Server) instance(role upstream.Role, name string) *upstream.Instance {
	for _, instance := range s.deps.Pool.Instances(role) {
		if instance.Name == name {
			return instance
		}
	}
	return nil
}

// workEvery is how often the unused tickets are looked through.
const workEvery = time.Second

// workOff releases by legs of our own what no turn has carried, until ctx ends.
func (s *Server) workOff(ctx context.Context) {
	tick := time.NewTicker(workEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		s.workOnce(ctx)
	}
}

// workOnce looks through the unused tickets. A defect ends this look, and not those
// that follow.
func (s *Server) workOnce(ctx context.Context) {
	defer s.survive("release", "all")
	s.retireBranches(ctx)
	for _, decode := range s.releases.due() {
		s.detached.Go(func() {
			defer s.releases.done(decode)
			defer s.survive("release", decode)
			for ctx.Err() == nil && s.releaseOne(ctx, decode) {
			}
		})
	}
}

// releaseOne releases one ticket by a prefill leg of one token, and reports whether
// it is worth going on.
func (s *Server) releaseOne(ctx context.Context, decode string) bool {
	for _, prefill := range s.deps.Pool.Instances(upstream.RolePrefill) {
		if s.barred(prefill) {
			continue
		}
		u, pair, ok := s.takeUnused(prefill, decode, true, func(instance *upstream.Instance) upstream.Facts {
			facts, _ := s.deps.Incarnations.Current(ctx, instance)
			return facts
		})
		if !ok {
			continue
		}
		params, err := s.releaseParams(u)
		if err != nil {
			return true // a malformed one; the next may be better
		}
		body, err := json.Marshal(map[string]any{"model": u.model, "prompt": "x", "max_tokens": 1, "kv_transfer_params": json.RawMessage(params)})
		if err != nil {
			return true
		}
		limited, cancel := context.WithTimeoutCause(ctx, s.cfg.ReuseTrialTimeout, upstream.ErrReuseTimeout)
		_, err = s.deps.Engine.Prefill(limited, upstream.Leg{Instance: prefill, API: upstream.Text, Body: body, RequestID: newID()})
		cancel()
		var leg *upstream.LegError
		switch {
		case errors.As(err, &leg) && !leg.Sent:
			s.releases.add(u)
		case err != nil:
			s.cfg.Logger.Warn("release failed; this pair releases nothing for a while", "prefill", prefill.Name, "decode", decode, "error", err)
			s.releases.failed(pair)
		}
		return err == nil
	}
	return false
}

package server

import (
	"context"
	"errors"
	"net/http"
	"time"

	"carryover/server/background"
	"carryover/server/pick"
	"carryover/server/reuse"
	"carryover/upstream"
)

// prefilled is the result of a prefill leg that ran at the same time as the decode leg.
type prefilled struct {
	answer upstream.PrefillAnswer
	took   time.Duration
	err    error
}

// together sends both legs at once. If the prefill leg fails, or leaves nothing for decode, the decode leg is ended, because it would wait
// for KV that never comes, for minutes on some engines. Decode does not wait for prefill's answer, which is read when the turn ends. A
// client that leaves ends decode's leg but not prefill's, because decode keeps the blocks until prefill has written them (Mooncake: both
// are free within 2 s of prefill's answer, measured, and without an answer after 480 s). The plan is closed when the prefill leg has ended.
func (s *turns) together(ctx context.Context, t *turn, p *pick.Pair, plan upstream.Plan, h *reuse.Claim) (*decoding, error) {
	handover, err := plan.Handover(upstream.PrefillAnswer{})
	if err != nil {
		closePlan(plan)
		return nil, err
	}
	both, cancel := context.WithCancelCause(ctx)
	own, end := context.WithCancelCause(context.WithoutCancel(ctx)) // the context of prefill's leg
	found, _ := s.finds(p, &reuse.Claim{})                          // legs that are sent together carry no ticket
	leg := s.prefillLeg(t, p, plan, found)
	sent := t.record.Sent(&leg, p.Prefill.ID())
	answered := make(chan prefilled, 1) // one result, read once
	var detached detachable
	h.LegSent = true
	began := time.Now()
	s.background.Run("turn", t.record.ID(), func() {
		defer detached.end()
		defer closePlan(plan)
		defer end(nil)
		defer context.AfterFunc(s.background.Context(), func() { end(background.ErrShuttingDown) })()
		limited, stop := context.WithTimeoutCause(own, s.cfg.PrefillTimeout, upstream.ErrPrefillTimeout)
		defer stop()
		answer, err := s.deps.Legs.Prefill(limited, sending(&leg))
		if err == nil {
			err = check(plan, answer, leg.Instance)
		}
		p.Prefilled()
		answered <- prefilled{answer, time.Since(began), err}
		if err != nil {
			cancel(err)
		}
	})
	cached := handover.Cached // the leg's ids must not live as long as the stream
	// finish ends the prefill leg if it still runs. It is called on the turn's goroutine. accepted says that decode has got its leg.
	finish := func(accepted bool) {
		cancel(nil)
		if ctx.Err() == nil || !accepted {
			end(nil)
		}
		select {
		case prefill := <-answered:
			sent.Answered(prefill.took, prefill.err)
			t.retry.last.blamePrefill(p.Prefill.Engine(), prefill.err, began)
			if prefill.err == nil {
				s.ratios.Learn(&t.Request, prefill.answer.PromptTokens)
				learnSpeed(p.Prefill, prefill.answer, cached, &t.Length, h, prefill.took)
			}
		default:
			detached.keeps(t.detach(), p.DetachPrefill())
			sent.Answered(time.Since(began), errUnanswered)
		}
	}
	d, err := s.decode(both, t, p, handed{
		Handover: handover, from: p.Prefill, until: time.Now().Add(s.cfg.HandoverBudget), together: true, lineage: s.lineages.Of(found),
	})
	if err != nil {
		if cause := legErrorOf(both); cause != nil {
			err = cause // decode's leg ended because prefill's failed
		}
		var failed *upstream.LegError
		finish(errors.As(err, &failed) && failed.Role == upstream.RoleDecode && failed.Sent)
		return nil, err
	}
	d.both, d.finish = both, func() { finish(true) }
	return d, nil
}

// check returns an error if prefill has answered but leaves decode nothing to read.
func check(plan upstream.Plan, answer upstream.PrefillAnswer, instance *upstream.Instance) error {
	if plan.Check == nil {
		return nil
	}
	if err := plan.Check(answer); err != nil {
		return &upstream.LegError{Role: upstream.RolePrefill, Instance: instance.Name, Kind: upstream.KVLoad, Sent: true, Err: err}
	}
	return nil
}

// reread asks the prefill engine for its current incarnation before the turn is tried again, where the connector has to know the engines.
// The failure may mean that prefill has restarted: decode failed because of what it was told about prefill, or the prefill leg broke off.
func (s *turns) reread(ctx context.Context, t *turn, err error) {
	var leg *upstream.LegError
	if s.deps.Connector.Traits().Introduce == nil || t.retry.last.prefill == nil || !errors.As(err, &leg) {
		return
	}
	decode := leg.Role == upstream.RoleDecode && (leg.Kind == upstream.KVLoad || leg.Status == http.StatusInternalServerError)
	prefill := leg.Role == upstream.RolePrefill && leg.Kind == upstream.Broken
	if engine := t.retry.last.prefill.Engine(); (decode || prefill) && !t.retry.picks.Excludes(engine) {
		engine.Refresh(ctx)
	}
}

// errTogether says that a connector has planned to send a ticket together with the decode leg.
var errTogether = errors.New("no ticket goes with legs that are sent together")

// errUnanswered is recorded for a prefill leg that had not answered when its turn ended.
var errUnanswered = errors.New("not answered when the turn ended")

// legErrorOf returns the failure of the other leg that ended the context, nil if no failure did.
func legErrorOf(ctx context.Context) error {
	var leg *upstream.LegError
	if errors.As(context.Cause(ctx), &leg) {
		return leg
	}
	return nil
}

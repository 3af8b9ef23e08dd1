package turn

import (
	"context"
	"errors"
	"time"

	"carryover/server/background"
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
func (a *attempt) together(ctx context.Context, plan upstream.Plan) (*decoding, error) {
	handover, err := plan.Handover(upstream.PrefillAnswer{})
	if err != nil {
		closePlan(plan)
		return nil, err
	}
	both, cancel := context.WithCancelCause(ctx)
	own, end := context.WithCancelCause(context.WithoutCancel(ctx)) // the context of prefill's leg
	leg := a.prefillLeg(plan)
	sent := a.Record.Sent(&leg, a.pair.Prefill.ID())
	answered := make(chan prefilled, 1) // one result, read once
	ended := make(chan struct{})        // closed when the leg has ended
	a.claim.Sent()
	began := time.Now()
	// The work and finish keep nothing else of the attempt, because they may last as long as the stream.
	r, turn, pair, claim, request, tried, detach := a.legRunner, a.Record.ID(), a.pair, a.claim, a.Request, a.tried, a.turn.detach
	r.deps.Background.Run("turn", turn, func() {
		defer close(ended)
		defer closePlan(plan)
		defer end(nil)
		defer context.AfterFunc(r.deps.Background.Context(), func() { end(background.ErrShuttingDown) })()
		limited, stop := context.WithTimeoutCause(own, r.cfg.PrefillTimeout, upstream.ErrPrefillTimeout)
		defer stop()
		answer, err := r.deps.Legs.Prefill(limited, sending(&leg))
		if err == nil {
			err = check(plan, answer, leg.Instance)
		}
		pair.Prefilled()
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
			tried.blamePrefill(pair.Prefill.Engine(), prefill.err, began)
			if prefill.err == nil {
				r.deps.Ratios.Learn(request, prefill.answer.PromptTokens)
				claim.Cached(prefill.answer.Cached)
				learnSpeed(pair.Prefill, prefill.answer, cached, &request.Length, claim, prefill.took)
			}
		default:
			free, leave := detach(), pair.DetachPrefill()
			r.deps.Background.Run("turn", turn, func() { <-ended; free(); leave() }) // the leg goes on
			sent.Answered(time.Since(began), errUnanswered)
		}
	}
	d, err := a.decode(both, handed{
		Handover: handover, from: a.pair.Prefill, until: time.Now().Add(a.cfg.HandoverBudget), together: true,
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

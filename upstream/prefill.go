package upstream

import (
	"context"
	"errors"
	"time"
)

// maxPrefillAnswer holds params of 1 MiB and the ids of a prompt of a million tokens.
const maxPrefillAnswer = 16 << 20

// answerLimit bounds the reading of a prefill answer whose headers have arrived.
const answerLimit = 10 * time.Second

// Prefill runs a prefill leg and reads its answer whole. Errors are *LegError;
// the context's cause tells which time limit ended the leg. Once headers have
// arrived the end of ctx stops nothing any more: prefill holds blocks for decode
// by then, and with its answer they can be read.
func (c *Client) Prefill(ctx context.Context, leg Leg) (PrefillAnswer, error) {
	if ctx.Err() != nil {
		// AfterFunc below would find that out too late to send nothing.
		return PrefillAnswer{}, leg.failure(ctx, Dial, ctx.Err())
	}
	parent := ctx
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(parent))
	defer cancel(nil)
	stop := context.AfterFunc(parent, func() { cancel(context.Cause(parent)) })
	resp, err := c.send(ctx, leg, nil)
	stop()
	if err != nil {
		return PrefillAnswer{}, err
	}
	defer resp.body.Close()
	limit := time.AfterFunc(answerLimit, func() { cancel(ErrPrefillTimeout) })
	defer limit.Stop()
	body, err := ReadAll(resp.body, maxPrefillAnswer)
	if err != nil {
		kind := Broken
		if errors.Is(err, ErrAnswerTooLarge) {
			kind = Garbage
		}
		return PrefillAnswer{}, leg.failure(ctx, kind, err)
	}
	return leg.readAnswer(ctx, body)
}

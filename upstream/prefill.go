package upstream

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"carryover/upstream/http1"
)

// maxPrefillAnswer allows for params of 1 MiB and the ids of a prompt of a million tokens.
const maxPrefillAnswer = 16 << 20

// answerLimit bounds the reading of a prefill answer whose headers have arrived.
const answerLimit = 10 * time.Second

// Prefill runs a prefill leg and reads its answer whole. Errors are *LegError; the context's cause tells which time
// limit ended the leg. Once headers have arrived, the end of ctx does not end the leg any more: prefill then holds
// blocks for decode, and only its answer says how to read them.
func (c *Client) Prefill(ctx context.Context, leg Leg) (PrefillAnswer, error) {
	if ctx.Err() != nil {
		// The transport would notice it too late to send nothing.
		return PrefillAnswer{}, leg.failure(ctx, Dial, ctx.Err())
	}
	resp, err := c.send(ctx, &leg, nil)
	if err != nil {
		return PrefillAnswer{}, err
	}
	defer resp.Close()
	if err := resp.Detach(); err != nil {
		return PrefillAnswer{}, leg.failure(ctx, Gone, err)
	}
	body, err := readInTime(resp, answerLimit)
	if err != nil {
		kind := Broken
		switch {
		case errors.Is(err, ErrAnswerTooLarge):
			kind = Garbage
		case errors.Is(err, ErrPrefillTimeout):
			kind = Timeout
		}
		return PrefillAnswer{}, leg.failed(kind, err)
	}
	return leg.readAnswer(body)
}

// readInTime reads the body of an answer within a limit. Mostly all of it has arrived with the header.
func readInTime(body *http1.Response, within time.Duration) ([]byte, error) {
	if body.Here() {
		return ReadAll(body, maxPrefillAnswer)
	}
	var late atomic.Bool
	limit := time.AfterFunc(within, func() {
		late.Store(true)
		_ = body.Close()
	})
	defer limit.Stop()
	read, err := ReadAll(body, maxPrefillAnswer)
	if err != nil && late.Load() {
		err = ErrPrefillTimeout
	}
	return read, err
}

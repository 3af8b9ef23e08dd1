package server

import (
	"context"
	"errors"

	"carryover/sse"
)

// completeness is how much of decode's answer is known when it has been read as far as it will be. It decides, for every API and every
// way on which the reading ends, whether a ticket or a hand-back may come of the answer. Where none may, the blocks that decode has
// named are released.
//
// An answer is complete when its end was seen, and the usage that counts its tokens where one is due: an id that is lost on the way, or
// comes twice, shows in the usage alone, because remote_num_tokens may be one less than there are tokens.
//
//	what was seen last                  the finish, no params   finish and params   the usage too   the end
//	the end: [DONE], message_delta,
//	response.completed, a whole body    –                       –                   –               complete *
//	the client leaves                   incomplete              uncounted *         complete        complete *
//	the program ends the turn           incomplete              uncounted *         complete        complete *
//	the stream ends without its end     incomplete              incomplete          incomplete      complete *
//	it breaks, is silent, is too long   incomplete              incomplete          incomplete      complete *
//	an error event                      incomplete              incomplete          incomplete      complete *
//	the other leg fails                 incomplete              incomplete          incomplete      complete *
//
// Before the finish every answer is incomplete. An answer whose usage is not due is complete where the table says uncounted; one whose
// usage is due and did not come is uncounted where the table says "complete *". A usage is due of all answers but those streams of the
// completion endpoints of which neither the client nor we have asked for it (asked.counted). A stream that breaks in front of a
// client that waits for it is incomplete although all was seen that matters: the client may not take its text for the answer, and sends
// the turn again.
type completeness int

const (
	// incomplete is an answer whose end was not seen.
	incomplete completeness = iota
	// uncounted is one whose end was seen, and not the usage that was to count its tokens.
	uncounted
	// complete is one of which all was seen.
	complete
)

// completeness is that of the answer so far.
func (a *answer) completeness() completeness {
	// Behind the finish with the params vLLM sends nothing that matters but the usage.
	end := a.done || a.left && a.finish != "" && a.params != nil
	switch {
	case a.failed || !end:
		return incomplete
	case a.decoding.asks.usageDue && !a.totalled:
		return uncounted
	}
	return complete
}

// lacks is why an answer of this completeness leaves no ticket, "" for nothing.
func (c completeness) lacks() string {
	switch c {
	case incomplete:
		return "incomplete"
	case uncounted:
		return "uncounted"
	}
	return ""
}

// clientLeft reports whether the reading of a stream ended, with err, because the client has gone.
func clientLeft(ctx context.Context, err error) bool {
	var write *sse.WriteError
	return errors.As(err, &write) || ctx.Err() != nil && !errors.Is(context.Cause(ctx), errShuttingDown) && legErrorOf(ctx) == nil
}

// leftEarly reports whether the reading of a stream ended, with err, although decode's answer may have gone on: the client has gone, or
// the program ends.
func leftEarly(ctx context.Context, err error) bool {
	return err != nil && (clientLeft(ctx, err) || errors.Is(context.Cause(ctx), errShuttingDown))
}

package turn

import (
	"errors"
	"io"
	"testing"

	"carryover/server/reuse"
	"carryover/upstream"
	"carryover/upstream/fleet/health"
)

// How long an answer of decode is, its client says: with prompt_logprobs it is longer than may be. That of prefill is ours.
func TestBlame_NotForAnswersThatAreTooLong(t *testing.T) {
	for err, want := range map[error]bool{upstream.ErrStreamTooLong: false, upstream.ErrAnswerTooLarge: false, upstream.ErrAnswerTimeout: false, io.ErrUnexpectedEOF: true} {
		for _, kind := range []upstream.Kind{upstream.Broken, upstream.Garbage} {
			if leg := decodeLeg(kind, 0, err); leg.AtFault() != want {
				t.Errorf("%v: got %t, want %t", leg, !want, want)
			}
		}
	}
	if !(&upstream.LegError{Role: upstream.RolePrefill, Kind: upstream.Garbage, Err: upstream.ErrAnswerTooLarge}).AtFault() {
		t.Error("prefill is not to blame for its answer")
	}
}

// An event that is too large ends the answer, but says nothing about decode. Other garbage opens its circuit.
func TestReading_BlamesNobodyForLargeEvents(t *testing.T) {
	for err, closed := range map[error]bool{upstream.ErrAnswerTooLarge: true, errors.New("not JSON"): false} {
		prefill, decode := newPair(t)
		r := &reading{origin: reuse.Origin{Prefill: prefill, Decode: decode}}
		for range health.FailuresToOpen {
			r.blame(decode.LegError(upstream.Garbage, err), &doubts{}, false)
		}
		if decode.Engine().Health.Closed() != closed {
			t.Errorf("%v: closed is %t", err, !closed)
		}
	}
}

// The leg that follows costs no retry budget, and goes without what was added: a ticket or release that prefill refused or left unanswered, or ids.
func TestFailure_IsCausedByWhatWasAdded(t *testing.T) {
	prefill := func(kind upstream.Kind, status int, err error) upstream.LegError {
		return upstream.LegError{Role: upstream.RolePrefill, Kind: kind, Status: status, Err: err, Sent: true}
	}
	for name, row := range map[string]struct {
		leg          upstream.LegError
		added, plain bool // whether it is with something added, and without
	}{
		"500":             {prefill(upstream.Status, 500, nil), true, false},
		"400":             {prefill(upstream.Status, 400, nil), false, false},
		"unanswered":      {prefill(upstream.Timeout, 0, upstream.ErrReuseTimeout), true, false},
		"ticket over":     {prefill(upstream.Timeout, 0, upstream.ErrTicketEnded), true, false},
		"prefill's limit": {prefill(upstream.Timeout, 0, upstream.ErrPrefillTimeout), false, false},
		"broken":          {prefill(upstream.Broken, 0, io.ErrUnexpectedEOF), false, false},
		"ids":             {prefill(upstream.IDEcho, 0, nil), true, true},
		"500 of decode":   {upstream.LegError{Role: upstream.RoleDecode, Kind: upstream.Status, Status: 500}, false, false},
	} {
		for added, want := range map[bool]bool{true: row.added, false: row.plain} {
			if got := (&failure{added: added}).caused(&row.leg); got != want {
				t.Errorf("%s, with something added %t: got %t", name, added, got)
			}
		}
	}
}

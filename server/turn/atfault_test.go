package turn

import (
	"io"
	"testing"

	"carryover/sse"
	"carryover/upstream"
)

// How long an answer of decode is, its client says: with prompt_logprobs it is longer than may be. That of prefill is ours.
func TestBlame_NotForAnswersThatAreTooLong(t *testing.T) {
	for err, want := range map[error]bool{upstream.ErrStreamTooLong: false, upstream.ErrAnswerTooLarge: false, sse.ErrOversize: false, io.ErrUnexpectedEOF: true} {
		for _, kind := range []upstream.Kind{upstream.Broken, upstream.Garbage} {
			if leg := decodeLeg(kind, 0, err); atFault(leg) != want {
				t.Errorf("%v: got %t, want %t", leg, !want, want)
			}
		}
	}
	if !atFault(&upstream.LegError{Role: upstream.RolePrefill, Kind: upstream.Garbage, Err: upstream.ErrAnswerTooLarge}) {
		t.Error("prefill is not to blame for its answer")
	}
}

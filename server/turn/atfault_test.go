package turn

import (
	"io"
	"testing"

	"carryover/sse"
	"carryover/upstream"
)

// How long an answer of decode is, its client says: with prompt_logprobs it is longer than may be. That of prefill is ours.
func TestBlame_NotForAnswersThatAreTooLong(t *testing.T) {
	for _, row := range []struct {
		leg  upstream.LegError
		want bool
	}{
		{upstream.LegError{Role: upstream.RoleDecode, Kind: upstream.Broken, Err: upstream.ErrStreamTooLong}, false},
		{upstream.LegError{Role: upstream.RoleDecode, Kind: upstream.Garbage, Err: upstream.ErrAnswerTooLarge}, false},
		{upstream.LegError{Role: upstream.RoleDecode, Kind: upstream.Garbage, Err: sse.ErrOversize}, false},
		{upstream.LegError{Role: upstream.RolePrefill, Kind: upstream.Garbage, Err: upstream.ErrAnswerTooLarge}, true},
		{upstream.LegError{Role: upstream.RoleDecode, Kind: upstream.Garbage, Err: io.ErrUnexpectedEOF}, true},
	} {
		if got := atFault(&row.leg); got != row.want {
			t.Errorf("%v: got %t, want %t", &row.leg, got, row.want)
		}
	}
}

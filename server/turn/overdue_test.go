package turn

import (
	"errors"
	"testing"
	"time"

	"carryover/server/request"
	"carryover/upstream"
	"carryover/upstream/fleet"
)

// The limit of a prefill leg grows with its work, and not without end.
func TestGrown(t *testing.T) {
	for _, row := range []struct{ set, expected, want time.Duration }{
		{2 * time.Minute, 0, 2 * time.Minute}, // nothing was learnt
		{2 * time.Minute, 10 * time.Second, 2 * time.Minute},
		{2 * time.Minute, 127 * time.Second, 381 * time.Second},
		{2 * time.Minute, 24 * time.Hour, 20 * time.Minute},
	} {
		if got := grown(row.set, row.expected); got != row.want {
			t.Errorf("%v, expected to take %v: %v, want %v", row.set, row.expected, got, row.want)
		}
	}
}

func TestTooLong(t *testing.T) {
	for row, want := range map[[3]int]bool{
		{400, 50, 100}: true, {413, 50, 100}: true, {400, 49, 100}: false, {400, 50, 0}: false, {404, 50, 100}: false, {500, 50, 100}: false,
	} {
		if got := tooLong(row[0], row[1], row[2]); got != want {
			t.Errorf("%v: got %t", row, got)
		}
	}
}

// What follows a prefill leg that was sent and failed, where no other instance is left: the one that has let its time pass is not asked again,
// and decode may answer a client that has waited for long.
func TestMayTryAgain_WithoutAnotherInstance(t *testing.T) {
	const soon, late = time.Minute, -time.Second
	for name, row := range map[string]struct {
		policy PrefillFailure
		err    error
		until  time.Duration
		want   bool
		alone  bool
	}{
		"broken":                {PrefillRetryOther, errors.New("EOF"), soon, true, false},
		"broken, late":          {PrefillRetryOther, errors.New("EOF"), late, false, false},
		"broken, decode alone":  {PrefillDecodeOnly, errors.New("EOF"), soon, true, true},
		"overdue":               {PrefillRetryOther, upstream.ErrPrefillTimeout, soon, true, true},
		"overdue, late":         {PrefillRetryOther, upstream.ErrPrefillTimeout, late, true, true},
		"overdue, decode alone": {PrefillDecodeOnly, upstream.ErrPrefillTimeout, late, true, true},
		"overdue, error":        {PrefillError, upstream.ErrPrefillTimeout, soon, false, false},
	} {
		h := New(Config{LegConfig: LegConfig{AnswerTimeout: 10 * time.Minute}}, Deps{Fleet: fleet.New(fleet.Config{})})
		r := &turn{
			Request: request.Request{Account: "t"}, routing: &RoutingConfig{PrefillFailure: row.policy},
			began: time.Now().Add(row.until - 5*time.Minute),
		}
		r.asked.PrefillError = row.policy == PrefillError
		leg := &upstream.LegError{Role: upstream.RolePrefill, Kind: upstream.Broken, Sent: true, Err: row.err}
		if errors.Is(row.err, upstream.ErrPrefillTimeout) {
			leg.Kind = upstream.Timeout
		}
		got := h.mayTryAgain(t.Context(), r, leg)
		if got != row.want || r.asked.NoPrefill != row.alone {
			t.Errorf("%s: got %t, decode alone: %t; want %t, %t", name, got, r.asked.NoPrefill, row.want, row.alone)
		}
	}
}

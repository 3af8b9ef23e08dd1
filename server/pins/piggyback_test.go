package pins

import (
	"errors"
	"testing"
	"time"

	"carryover/upstream"
	"carryover/upstream/fleet/unused"
)

// releasing are blocks whose ticket is on its leg.
func releasing() queued {
	q := queued{newStates(time.Hour, nil), 1}
	q.move(Releasing)
	return q
}

func TestPiggyback_OfALegThatFails(t *testing.T) {
	for name, tc := range map[string]struct {
		leg    upstream.LegError
		waits  bool // it goes back to the list
		turns  bool // and turns may carry it again
		spares bool // legs of turns carry nothing for a while
	}{
		"not sent":               {upstream.LegError{Kind: upstream.Dial}, true, true, false},
		"client gone after":      {upstream.LegError{Kind: upstream.Gone, Sent: true}, true, false, false},
		"the client's own error": {upstream.LegError{Kind: upstream.Status, Fault: upstream.Fault{}, Status: 400, Sent: true}, true, false, false},
		"the engine's error":     {upstream.LegError{Kind: upstream.Status, Status: 500, Sent: true}, true, false, true},
		"no answer":              {upstream.LegError{Kind: upstream.Timeout, Sent: true, Err: upstream.ErrReuseTimeout}, true, false, true},
		"broken in the middle":   {upstream.LegError{Kind: upstream.Broken, Sent: true, Err: errors.New("reset")}, true, false, true},
		"unreadable good status": {upstream.LegError{Kind: upstream.Garbage, Sent: true}, true, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			prefill, decode := newPair(t)
			pairState := prefill.PairWith(decode)
			pairState.ExchangedKV()
			a := unused.Ticket{Params: []byte("a"), Deadline: time.Now().Add(time.Hour)}
			r := &Release{unused: a, holder: decode, pairState: pairState, of: releasing()}
			r.failed(&tc.leg)
			if n := decode.Pins.Unused(); n != 1 {
				t.Errorf("%d tickets wait, want the one that is not certain to be released", n)
			}
			_, turns := prefill.TakeUnused(decode, false)
			_, own := prefill.TakeUnused(decode, true)
			if waits := turns || own; waits != tc.waits || turns != tc.turns {
				t.Errorf("waiting: %v, for turns too: %v, want %v, %v", waits, turns, tc.waits, tc.turns)
			}
			decode.Pins.Leave(a)
			if _, ok := prefill.TakeUnused(decode, false); ok == tc.spares {
				t.Errorf("turns carry releases: %v, want none %v", ok, tc.spares)
			}
		})
	}
}

// Whether decode was told is open twice: the blocks count until decode's TTL ends, and no third leg names them.
func TestPiggyback_OpenTwiceLasts(t *testing.T) {
	prefill, decode := newPair(t)
	pairState := prefill.PairWith(decode)
	pairState.ExchangedKV()
	decode.Pins.Leave(unused.Ticket{Params: []byte("a"), Deadline: time.Now().Add(time.Hour), FreshAsOf: time.Now(), Tokens: 10})
	for want := 1; want >= 0; want-- {
		u, ok := prefill.TakeUnused(decode, true)
		if !ok {
			t.Fatal("nothing waits to be released")
		}
		r := &Release{unused: u, holder: decode, pairState: pairState, of: releasing()}
		r.failed(&upstream.LegError{Kind: upstream.Gone, Sent: true})
		if n := decode.Pins.Unused(); n != want {
			t.Errorf("%d tickets wait, want %d", n, want)
		}
	}
}

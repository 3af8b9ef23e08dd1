package server_test

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"carryover/server"
	"carryover/upstream/fleet"
)

// silentRig is a rig whose first decode instance owes a stream its first byte, until the gate is opened, and whose conversation "c" has a
// ticket there.
type silentRig struct {
	*rig
	*clock
	gate    chan struct{}
	waiting chan reply
}

func newSilentRig(t *testing.T, decoders, turns int, head string) silentRig {
	t.Helper()
	c := &clock{}
	r := silentRig{clock: c, gate: make(chan struct{}), waiting: make(chan reply, 1)}
	r.rig = newRig(t, setup{
		decodes: decoders, fleet: func(cfg *fleet.Config) { cfg.Now = c.now },
		cfg: func(cfg *server.Config) { cfg.FirstByteTimeout = 4 * time.Minute },
	})
	for range turns {
		r.wantOK(r.turn("c", 1, true), "miss;reason=first_turn")
	}
	r.decode[0].next(func(w http.ResponseWriter, q *http.Request, l leg) {
		sayHeaders(w)
		_, _ = io.WriteString(w, head)
		_ = http.NewResponseController(w).Flush()
		waits(r.gate, decodes)(w, q, l)
	})
	legs := len(r.decode[0].seen())
	go func() { r.waiting <- r.turn("", 1, true) }()
	r.decode[0].await(legs + 1)
	return r
}

// wantState wants decode's first instance to be in a state.
func (r silentRig) wantState(want, why string) {
	r.t.Helper()
	if live := r.engine(r.decode[0]).Live(); live.State != want || !strings.Contains(live.Why, why) {
		r.t.Errorf("decode-0 is %q (%s), want %s (… %s …)", live.State, live.Why, want, why)
	}
}

// A decode instance that hangs is known by the streams that wait there, long before their limit. What its API server sends is no sign of life.
func TestTurn_ASilentDecodeGetsNoTurnsUntilItAnswers(t *testing.T) {
	t.Parallel()
	r := newSilentRig(t, 2, 1, ": this comes from the API server\n\n")
	r.advance(r.rig, 9*time.Second)
	r.wantState("up", "")
	r.advance(r.rig, 2*time.Second)
	r.wantState("open", "gets no turns until it answers")
	legs := len(r.decode[0].seen())
	r.wantOK(r.turn("c", 2, true), "miss;reason=instance_gone")
	r.wantOK(r.turn("", 1, false), "miss;reason=")
	if n := len(r.decode[0].seen()) - legs; n > 0 {
		t.Errorf("decode-0 got %d legs", n)
	}
	if p := r.get("/readyz"); p.status != http.StatusOK || !strings.Contains(p.body, `"decode":1,`) {
		t.Errorf("/readyz: %d %s, want ready by one decode instance", p.status, p.body)
	}
	close(r.gate)
	r.wantOK(<-r.waiting, "miss;reason=")
	r.wantState("up", "")
	r.wantOK(r.turn("c", 3, true), "hit;")
}

// The first hand-over of a pair says nothing of decode, which may not be able to read prefill.
func TestTurn_TheFirstHandOverOfAPairSuspectsNobody(t *testing.T) {
	t.Parallel()
	r := newSilentRig(t, 1, 0, "")
	r.advance(r.rig, time.Minute)
	r.wantState("up", "")
	close(r.gate)
	r.wantOK(<-r.waiting, "miss;reason=no_conversation")
}

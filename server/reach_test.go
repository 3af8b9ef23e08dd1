package server_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"carryover/server"
	"carryover/upstream"
)

// decodesShut is a rig whose decode instances have answered once and refuse connections now.
func decodesShut(t *testing.T, decodes int, change func(*server.Config)) *rig {
	t.Helper()
	r := newRig(t, setup{decodes: decodes, doors: true, cfg: change})
	r.wantOK(r.turn("before", 1, true), "miss;")
	for _, e := range r.decode {
		e.door.shut()
	}
	return r
}

func TestReach_OneDecodeIsBack_TurnsGoThere(t *testing.T) {
	r := decodesShut(t, 3, nil)
	r.wantError(r.turn("first", 1, true), 503, "decode_unavailable")
	r.decode[2].door.open()
	r.wantOK(r.turn("c", 1, true), "miss;")
	if n := len(r.decode[2].seen()); n != 1 {
		t.Errorf("got %d legs at the decode instance that is back, want 1", n)
	}
}

// A reading without an answer counts for five seconds. A decode instance that is back must not be taken for the process of before, or for
// one that is not known, as long: the ticket of its first turn would be a miss, and its blocks would be released nowhere.
func TestReach_DecodeIsBack_ItsStartIsReadAtOnce(t *testing.T) {
	r := decodesShut(t, 1, nil)
	r.wantError(r.turn("first", 1, true), 503, "decode_unavailable")
	r.engine(r.decode[0]).Refresh(t.Context())
	r.decode[0].door.open()
	r.wantOK(r.turn("c", 1, true), "miss;")
	r.wantOK(r.turn("c", 2, true), "hit;")
}

func TestReach_DecodeIsUnhealthyAndTakesConnections_TurnsGoThere(t *testing.T) {
	r := decodesShut(t, 1, nil)
	r.wantError(r.turn("first", 1, true), 503, "decode_unavailable")
	r.decode[0].health = status(503, "starting")
	r.decode[0].door.open()
	r.wantOK(r.turn("c", 1, true), "miss;")
}

// reachSeam has a test step in around the questions whether an engine takes connections.
type reachSeam struct {
	server.Legs
	before func(ctx context.Context)
}

func (s *reachSeam) Reach(ctx context.Context, instance *upstream.Instance) error {
	call(s.before, ctx)
	return s.Legs.Reach(ctx, instance)
}

func TestReach_TheClientLeavesMeanwhile_NoEngineIsBlamed(t *testing.T) {
	l, seam := newLeaver(t), &reachSeam{}
	r := newRig(t, setup{decodes: 2, doors: true, front: contexts(l.arrived), deps: func(d *server.Deps) {
		seam.Legs, d.Legs = d.Legs, seam
	}})
	r.decode[0].door.shut()
	r.decode[1].door.shut()
	r.wantError(r.turn("first", 1, true), 503, "decode_unavailable")
	<-l.arrived
	asked := 0
	seam.before = func(ctx context.Context) {
		asked++
		l.leave()
		<-ctx.Done()
	}
	resp, err := r.open(l.ctx, http.MethodPost, chatPath, strings.NewReader(ask("c", true, history(1)...)))
	if err == nil {
		_ = resp.Body.Close()
		t.Fatal("a turn was answered whose client had left")
	}
	l.noticed(t)
	r.until(func() bool { return r.lines() == 2 })
	if asked != 1 {
		t.Errorf("%d engines were tried for a client that had left, want 1", asked)
	}
}

package server_test

import (
	"net/http"
	"strings"
	"testing"

	"carryover/server"
	"carryover/server/admission"
	"carryover/upstream"
)

// roomy lets turns wait for an instance.
func roomy(c *server.Config) {
	c.QueueConfig = admission.QueueConfig{MaxQueue: 100, QueueTimeout: patience}
}

// fill has a turn take the only room of the only decode instance.
func fill(r *rig, header ...string) *occupied {
	r.t.Helper()
	r.deps.Fleet.SetMaxInFlight(1)
	return occupy(r, header...)
}

// waits sends a turn, and returns when so many wait for an instance.
func (o *occupied) waits(waiting int, header ...string) <-chan reply {
	o.t.Helper()
	answered := make(chan reply, 1)
	go func() { answered <- o.turn("", 1, true, header...) }()
	o.wantInLine(waiting)
	return answered
}

func (o *occupied) wantInLine(want int) {
	o.t.Helper()
	o.until(func() bool { _, n := o.server.Slots.Waiting(); return n == want })
}

func TestSlot_TurnWaitsForAnInstance(t *testing.T) {
	o := fill(newRig(t, setup{cfg: roomy}))
	second := o.waits(1)
	if p, d := len(o.prefill[0].seen()), len(o.decode[0].seen()); p != 1 || d != 1 {
		t.Errorf("got %d prefill and %d decode legs while the instance is full, want those of one turn", p, d)
	}
	o.free()
	p := <-second
	o.wantOK(p, "miss;")
	if timing := p.header.Get("Server-Timing"); !strings.HasPrefix(timing, "queue;dur=") {
		t.Errorf("got Server-Timing %q, want the wait in it", timing)
	}
}

func TestSlot_RefusesWhenNoneMayWait(t *testing.T) {
	o := fill(newRig(t, setup{}))
	p := o.turn("", 1, true)
	o.wantError(p, 503, "queue_full")
	wantRetryAfter(t, p, "1")
	o.free()
	o.until(func() bool { return o.turn("", 1, true).status == 200 })
}

// An instance that comes, and a limit that is raised, are room too.
func TestSlot_IsFoundWhereItComesFrom(t *testing.T) {
	for name, more := range map[string]func(o *occupied){
		"limit": func(o *occupied) { o.deps.Fleet.SetMaxInFlight(2) },
		"instance": func(o *occupied) {
			e := newEngine(o.t, upstream.RoleDecode, "decode-1")
			o.deps.Fleet.Set([]upstream.Instance{
				*o.engine(o.prefill[0]).Instance(), *o.engine(o.decode[0]).Instance(), newInstance(o.t, upstream.RoleDecode, e.name, e.server.URL),
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := fill(newRig(t, setup{cfg: roomy}))
			second := o.waits(1)
			more(o)
			o.wantOK(<-second, "miss;")
			o.free()
		})
	}
}

func TestSlot_ClientThatLeavesWhileItWaits(t *testing.T) {
	o := fill(newRig(t, setup{cfg: roomy}))
	l := newLeaver(t)
	go func() { _ = o.do(l.ctx, http.MethodPost, chatPath, strings.NewReader(ask("", true, "q"))) }()
	o.wantInLine(1)
	l.leave()
	o.wantInLine(0)
	o.until(func() bool { return o.log.count(`"msg":"turn"`, `"status":499`) == 1 })
	o.free()
	o.wantOK(o.turn("", 1, true), "miss;")
}

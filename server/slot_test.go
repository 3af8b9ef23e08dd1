package server_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"carryover/server"
	"carryover/server/admission"
	"carryover/upstream"
	"carryover/upstream/fleet"
)

// roomy lets turns wait.
func roomy(c *server.Config) {
	c.QueueConfig = admission.QueueConfig{MaxQueue: 100, QueueTimeout: patience}
}

// queued lets one turn run and others wait.
func queued(c *server.Config) { roomy(c); c.MaxStreams = 1 }

// busy are rigs in which one turn runs at a time: the next waits for a place, or for room on an instance.
func busy() map[string]setup {
	return map[string]setup{"place": {cfg: queued}, "room": {cfg: roomy, fleet: func(c *fleet.Config) { c.MaxInFlight = 1 }}}
}

// occupied is a rig whose only place is taken by a turn that ends when the gate is closed.
type occupied struct {
	*rig
	gate  chan struct{}
	first chan reply
}

// occupy has a turn take the place of a rig.
func occupy(r *rig, header ...string) *occupied {
	r.t.Helper()
	o := &occupied{r, make(chan struct{}), make(chan reply, 1)}
	legs := len(r.decode[0].seen())
	r.decode[0].next(waits(o.gate, decodes))
	go func() { o.first <- r.turn("", 1, true, header...) }()
	r.decode[0].await(legs + 1)
	return o
}

// free ends the turn that has the place.
func (o *occupied) free() {
	o.t.Helper()
	close(o.gate)
	o.wantOK(<-o.first, "miss;")
}

// comes sends a turn, and returns when so many wait in all.
func (o *occupied) comes(waiting int, header ...string) <-chan reply {
	o.t.Helper()
	answered := make(chan reply, 1)
	go func() { answered <- o.turn("", 1, true, header...) }()
	o.wantWaiting(waiting)
	return answered
}

func (o *occupied) wantWaiting(want int) {
	o.t.Helper()
	o.until(func() bool { toBegin, forInstance := o.server.Slots.Waiting(); return toBegin+forInstance == want })
}

func TestQueue_RefusesWhoMayNotWait(t *testing.T) {
	for name, row := range map[string]struct {
		s       setup
		waiting int
		code    string
	}{
		"out of time":        {setup{cfg: func(c *server.Config) { queued(c); c.QueueTimeout = 50 * time.Millisecond }}, 0, "queue_timeout"},
		"full":               {setup{cfg: func(c *server.Config) { queued(c); c.MaxQueue = 1 }}, 1, "queue_full"},
		"none for a place":   {setup{cfg: func(c *server.Config) { c.MaxStreams = 1 }}, 0, "queue_full"},
		"none for an engine": {setup{fleet: func(c *fleet.Config) { c.MaxInFlight = 1 }}, 0, "queue_full"},
	} {
		t.Run(name, func(t *testing.T) {
			o := occupy(newRig(t, row.s))
			var others []<-chan reply
			for n := range row.waiting {
				others = append(others, o.comes(n+1))
			}
			p := o.turn("", 1, true)
			o.wantError(p, 503, row.code)
			wantRetryAfter(t, p, "1")
			if row.waiting > 0 {
				o.server.Slots.Configure(admission.QueueConfig{MaxQueue: 2, QueueTimeout: patience})
				others = append(others, o.comes(2))
			}
			o.free()
			for _, answered := range others {
				o.wantOK(<-answered, "miss;")
			}
			o.until(func() bool { return o.turn("", 1, true).status == 200 })
		})
	}
}

// The tenant that holds a place and has others in line waits for the one turn of another.
func TestQueue_TenantsHaveEqualShares(t *testing.T) {
	o := occupy(newRig(t, setup{cfg: queued}), "Authorization", "a")
	greedy := []<-chan reply{o.comes(1, "Authorization", "a"), o.comes(2, "Authorization", "a")}
	seen := len(o.decode[0].seen())
	o.comes(3, "Authorization", "b")
	second := make(chan struct{})
	o.decode[0].next(waits(second, decodes))
	// The place goes to a's next turn if turns are served as they came: that one would be the one that waits now.
	o.free()
	o.decode[0].await(seen + 1)
	o.wantWaiting(2)
	if len(greedy[0])+len(greedy[1]) > 0 {
		t.Error("the tenant with two turns was served first")
	}
	close(second)
	for _, answered := range greedy {
		o.wantOK(<-answered, "miss;")
	}
}

func TestQueue_ClientThatLeavesFreesItsSpace(t *testing.T) {
	for name, s := range busy() {
		t.Run(name, func(t *testing.T) {
			o := occupy(newRig(t, s))
			l := newLeaver(t)
			go func() { _ = o.do(l.ctx, http.MethodPost, chatPath, strings.NewReader(ask("", true, "q"))) }()
			o.wantWaiting(1)
			l.leave()
			o.wantWaiting(0)
			o.until(func() bool { return o.log.count(`"msg":"turn"`, `"status":499`) == 1 })
			o.free()
			o.wantOK(o.turn("", 1, true), "miss;")
		})
	}
}

// A large body is not read before its turn has a place, a small one is.
func TestQueue_LargeBodyIsReadWhenItsTurnHasASlot(t *testing.T) {
	for length, early := range map[int]bool{64 << 10: true, 64<<10 + 1: false} {
		t.Run(fmt.Sprint(length), func(t *testing.T) {
			r := newRig(t, setup{cfg: queued})
			o := occupy(r)
			conn := r.dial()
			body := with(`"x":"` + strings.Repeat("y", length-len(with(`"x":""`))) + `"`)
			_, _ = io.WriteString(conn, wire("POST "+chatPath, body, fmt.Sprintf("Content-Length: %d", length), "Connection: close"))
			o.wantWaiting(1)
			if bytes, _ := r.server.Inflight(); bytes >= int64(length) != early {
				t.Errorf("%d bytes are in flight while a body of %d waits", bytes, length)
			}
			o.free()
			if answer, err := io.ReadAll(conn); err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 200 ") {
				t.Errorf("got %q, %v", answer, err)
			}
		})
	}
}

func TestQueue_ShutdownEndsWaits(t *testing.T) {
	r := run(t, setup{cfg: queued})
	o := occupy(r.rig)
	second := o.comes(1)
	r.stop()
	p := <-second
	o.wantError(p, 503, "server_shutting_down")
	wantRetryAfter(t, p, "1")
	o.free() // what has a place goes on
	r.end()
}

func TestQueue_DefectKeepsNoSlot(t *testing.T) {
	all := &seams{}
	r := newRig(t, setup{deps: all.in, cfg: func(c *server.Config) { c.MaxStreams = 1 }})
	r.wantOK(r.turn("c", 1, false), "miss;")
	all.store.peek = func(context.Context) { panic("defect") }
	r.until(func() bool { return r.turn("c", 2, false).status == 500 })
	all.store.peek = nil
	r.until(func() bool { return r.turn("c", 2, false).status == 200 })
}

// fill has a turn take the only room of the only decode instance.
func fill(r *rig) *occupied {
	r.t.Helper()
	r.deps.Fleet.SetMaxInFlight(1)
	return occupy(r)
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
			second := o.comes(1)
			more(o)
			o.wantOK(<-second, "miss;")
			o.free()
		})
	}
}

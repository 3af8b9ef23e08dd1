package server_test

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"carryover/convcache"
	"carryover/server"
)

// seams is all of them on one server.
type seams struct {
	store     storeSeam
	unsent    unsent
	legs      legsSeam
	connector connectorSeam
}

func (s *seams) in(d *server.Deps) {
	s.store.Store, d.Store = d.Store, &s.store
	s.unsent.Legs, s.legs.Legs, d.Legs = d.Legs, &s.unsent, &s.legs
	s.connector.Connector, d.Connector = d.Connector, &s.connector
}

func TestPanic_BeforeCommitIsAnError(t *testing.T) {
	var armed atomic.Bool // a rescue may come by while the test goes on
	boom := func(context.Context) {
		if armed.CompareAndSwap(true, false) {
			panic("boom at " + engineHost)
		}
	}
	stored := func(ctx context.Context) (convcache.Outcome, bool) { boom(ctx); return 0, false }
	const kept, spent = "hit;", "miss;reason=nothing_stored" // what the same turn comes to afterwards
	for name, row := range map[string]struct {
		set  func(*seams)
		next string
	}{
		"peek":           {func(s *seams) { s.store.peek = boom }, kept},
		"take":           {func(s *seams) { s.store.take = stored }, kept},
		"prefill params": {func(s *seams) { s.connector.prefillParams = func([]byte) error { boom(nil); return nil } }, kept},
		"prefill":        {func(s *seams) { s.legs.beforePrefill = boom }, spent},
		"decode params":  {func(s *seams) { s.connector.decodeParams = func() { boom(nil) } }, spent},
		"decode":         {func(s *seams) { s.legs.beforeDecode = boom }, spent},
		"keep":           {func(s *seams) { s.connector.keep = func() error { boom(nil); return nil } }, spent},
		"put":            {func(s *seams) { s.store.put = stored }, spent},
	} {
		t.Run(name, func(t *testing.T) {
			all := &seams{}
			row.set(all)
			r := newRig(t, setup{deps: all.in})
			r.wantOK(r.turn("c", 1, false), "miss;")
			armed.Store(true)
			p := r.turn("c", 2, false)
			r.wantError(p, 500, "internal")
			r.wantHeaders(p)
			r.wantOK(r.turn("c", 2, false), row.next)
			r.wantOK(r.turn("c", 3, false), "hit;") // the link is not on trial for ever
			if n := r.log.count("panic in a turn", `"level":"ERROR"`); n != 1 {
				t.Errorf("got %d records of the panic, want 1", n)
			}
		})
	}
}

func TestPanic_AfterCommitAbortsTheConnection(t *testing.T) {
	all := &seams{}
	r := newRig(t, setup{deps: all.in})
	var later atomic.Bool
	all.store.put = func(context.Context) (convcache.Outcome, bool) {
		if later.Swap(true) {
			return 0, false
		}
		panic("boom")
	}
	r.decode[0].next(func(w http.ResponseWriter, _ *http.Request, l leg) {
		e := chatEvents(l)
		say(w, e[:4]...)
		<-r.committed
		say(w, e[4:]...)
	})
	resp, err := r.open(context.Background(), http.MethodPost, chatPath, strings.NewReader(ask("c", true, "q")))
	if err != nil {
		t.Fatal(err)
	}
	close(r.committed)
	p := r.rest(resp)
	cutOff(t, p)
	r.wantOK(r.turn("c", 1, true), "miss;")
}

func TestPanic_InDetachedWorkIsLogged(t *testing.T) {
	l := newLeaver(t)
	all := &seams{}
	all.legs.beforeRescue = func(context.Context) { panic("boom") }
	all.legs.afterPrefill = func(ctx context.Context) {
		l.leave()
		<-ctx.Done()
	}
	r := newRig(t, setup{deps: all.in})
	_ = r.do(l.ctx, http.MethodPost, chatPath, strings.NewReader(ask("c", true, "q")))
	r.until(func() bool { return r.log.count("panic", `"level":"ERROR"`) == 1 })
	all.legs.stepAside()
	r.wantOK(r.turn("c", 1, true), "miss;")
}

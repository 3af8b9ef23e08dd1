package fleet

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"
	"weak"

	"carryover/upstream"
	"carryover/upstream/fleet/facts"
)

// Instances come and go: what a fleet holds on to, what the heap has and which goroutines run is as at the start.
func TestFleet_NothingGrowsWithInstances(t *testing.T) {
	r := newRig(t)
	p, d := r.incarnations()
	kept := r.instances
	churn := func(i int) (e weak.Pointer[Engine]) {
		id := fmt.Sprintf("%05d", i)
		next := append(kept[:len(kept):len(kept)], upstream.Instance{Role: upstream.RolePrefill, Name: "p" + id, BaseURL: "http://10.0.0.9"},
			upstream.Instance{Role: upstream.RoleDecode, Name: "d" + id, BaseURL: "http://10.0.0.9"})
		r.Set(next)
		np, nd := r.Engine(upstream.RolePrefill, "p"+id), r.Engine(upstream.RoleDecode, "d"+id)
		r.learnAll(tells(np, id), tells(nd, id))
		p.PairWith(tells(nd, id)).Begin("")
		tells(np, id).PairWith(d).Begin("")
		for _, e := range []*Engine{np, nd} {
			models := []facts.Model{{ID: "m" + id}}
			e.models.list = models
			e.served.Store(r.shared(models))
			hint := Hint{Key: id, Model: "m" + id, AllowQuarantined: true, Chain: []uint64{1, 2, 3}, Holds: []Holding{{"d" + id, id, 5}}}
			_, done, err := r.Pick(e.Role, hint, func(other *Engine) bool { return other != e })
			if err != nil {
				t.Fatal(err)
			}
			if i%2 == 0 {
				defer done() // after it has gone
			} else {
				done()
			}
		}
		r.Set(kept)
		return weak.Make(nd) // which was picked last
	}
	heap := func() (bytes uint64) {
		runtime.GC()
		runtime.GC()
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		return stats.HeapAlloc
	}
	for i := range 200 {
		churn(i)
	}
	goroutines := runtime.NumGoroutine()
	r.forgetGone()
	values, bytes := reached(r.Fleet), heap()
	var last weak.Pointer[Engine]
	for i := range 4_000 {
		last = churn(i)
	}
	r.forgetGone()
	if n := reached(r.Fleet); n != values {
		t.Errorf("the fleet reaches %d values, at first it was %d", n, values)
	}
	if now := heap(); now > bytes+bytes/10+1<<20 {
		t.Errorf("the heap has %d bytes, at first it was %d", now, bytes)
	}
	if last.Value() != nil {
		t.Error("an engine that has gone is held on to")
	}
	if n := runtime.NumGoroutine(); n > goroutines {
		t.Errorf("%d goroutines run, at first it was %d", n, goroutines)
	}
	runtime.KeepAlive(r.Fleet)
}

// forgetGone ends what is remembered, within bounds, of engines that have gone.
func (r *rig) forgetGone() {
	r.pass(unsetKVTTL)
	r.away = nil
	r.Set(r.instances)
}

// The same with engines that are asked: what was begun for one that has gone comes to its end.
func TestFleet_NothingRunsOnForEnginesThatHaveGone(t *testing.T) {
	r := newRig(t)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		switch {
		case req.URL.Path == "/metrics":
			_, _ = io.WriteString(w, "process_start_time_seconds 5\n")
		case strings.HasPrefix(req.URL.Path, "/v1/models"):
			_, _ = io.WriteString(w, listOf("m"))
		}
	}))
	defer srv.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for i := range 100 {
		r.Set([]upstream.Instance{{Role: upstream.RoleDecode, Name: fmt.Sprint(i), BaseURL: srv.URL}})
		r.probeAll(ctx)
		e := r.Engines(upstream.RoleDecode)[0]
		r.Set(nil)
		<-e.listModels(ctx)
		if e.Reachable() {
			t.Fatal("an engine that has gone is reachable")
		}
	}
	r.cfg.Client.Close() // goleak sees what is left
}

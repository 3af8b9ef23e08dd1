package fleet

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"carryover/upstream"
	"carryover/upstream/fleet/facts"
	"carryover/upstream/fleet/health"
)

// lister is an engine that lists models, as the test has it at the moment.
type lister struct {
	*Engine
	incarnation, list atomic.Value // strings; an empty list is a 404, "hang up" breaks the connection, "503" is one
	asked             atomic.Int64
}

func (r *rig) lister(role upstream.Role, name string, models ...string) *lister {
	r.t.Helper()
	l := &lister{}
	l.incarnation.Store("1")
	l.list.Store(listOf(models...))
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		switch req.URL.Path {
		case "/metrics":
			_, _ = io.WriteString(w, "process_start_time_seconds "+l.incarnation.Load().(string)+"\n")
		case "/v1/models":
			l.asked.Add(1)
			switch list := l.list.Load().(string); list {
			case "":
				http.NotFound(w, req)
			case "hang up":
				panic(http.ErrAbortHandler)
			case "503":
				w.WriteHeader(http.StatusServiceUnavailable)
			default:
				_, _ = io.WriteString(w, list)
			}
		}
	}))
	r.t.Cleanup(srv.Close)
	l.Engine = r.add(role, name, srv.URL)
	return l
}

// round lets the prober go round once, and waits for what it has begun.
func (r *rig) round(engines ...*lister) {
	r.t.Helper()
	r.probeAll(r.t.Context())
	for _, l := range engines {
		l.mu.Lock()
		under := l.models.under
		l.mu.Unlock()
		if under != nil {
			<-under
		}
	}
}

// serving returns which of the engines may be picked for a model: names, or the error.
func (r *rig) serving(role upstream.Role, model string) string {
	r.t.Helper()
	var tried []string
	for {
		e, done, err := r.Pick(role, Hint{Model: model}, excluding(tried...))
		switch {
		case errors.Is(err, upstream.ErrNoInstance) && len(tried) > 0:
			slices.Sort(tried)
			return strings.Join(tried, " ")
		case err != nil:
			return err.Error()
		}
		done()
		tried = append(tried, e.Name)
	}
}

func (r *rig) wantServing(model, want string) {
	r.t.Helper()
	if got := r.serving(upstream.RoleDecode, model); got != want {
		r.t.Errorf("%q is served by %q, want %q", model, got, want)
	}
}

func ids(models []facts.Model) string {
	var all []string
	for _, m := range models {
		all = append(all, m.ID)
	}
	return strings.Join(all, " ")
}

func TestModels_ATurnGoesOnlyWhereItsModelIsServed(t *testing.T) {
	r := newRig(t)
	a, b := r.lister(upstream.RoleDecode, "a", "base", "lora-1"), r.lister(upstream.RoleDecode, "b", "base", "lora-2")
	p := r.lister(upstream.RolePrefill, "p", "lora-3", "base")
	all := []*lister{a, b, p}
	none := upstream.ErrNoModel.Error()
	r.wantServing("unheard of", "a b") // nothing is known yet
	if got := r.Catalogue.Models(); got != nil {
		t.Errorf("before any list: %v", got)
	}
	r.round(all...)
	if got := ids(r.Catalogue.Models()); got != "base lora-1 lora-2 lora-3" {
		t.Errorf("all models: %s", got)
	}
	if got := string(r.Catalogue.Models()[0].Card); got != `{"id":"base","object":"model"}` {
		t.Errorf("the card is %s", got)
	}
	if got := a.Live().Models; !slices.Equal(got, []string{"base", "lora-1"}) {
		t.Errorf("a serves %v", got)
	}
	r.wantServing("base", "a b")
	r.wantServing("", "a b")
	r.wantServing("lora-1", "a")
	r.wantServing("lora-2", "b")
	r.wantServing("lora-3", none)
	if got := r.serving(upstream.RolePrefill, "lora-3"); got != "p" {
		t.Errorf("prefill: %s", got)
	}
	// The model is served, but not by an engine that may be picked.
	if _, _, err := r.Pick(upstream.RoleDecode, Hint{Model: "lora-1"}, excluding("a")); !errors.Is(err, upstream.ErrNoInstance) {
		t.Errorf("its only engine is excluded: %v", err)
	}
	for range health.UnhealthyAfter {
		a.Health.Probed(false)
	}
	r.wantServing("lora-1", "a") // down is no reason to send a turn where its model is not served
	if got := ids(r.Catalogue.Models()); got != "base lora-2 lora-3" {
		t.Errorf("with a down: %s", got)
	}
	r.Set(r.instances[1:])
	r.wantServing("lora-1", none)
}

func TestModels_AListIsReadAtEachStartAndEveryHalfMinute(t *testing.T) {
	r := newRig(t)
	a := r.lister(upstream.RoleDecode, "a", "old")
	want := func(asked int64, models string) {
		t.Helper()
		r.round(a)
		if got := a.asked.Load(); got != asked || ids(a.Models()) != models {
			t.Errorf("asked %d times for %q, want %d times for %q", got, ids(a.Models()), asked, models)
		}
	}
	want(1, "old")
	want(1, "old")
	a.list.Store(listOf("new"))
	a.incarnation.Store("2") // the reading that tells it begins in this round
	want(2, "new")
	a.list.Store(listOf("new", "lora"))
	r.pass(modelsEvery - time.Second)
	want(2, "new")
	r.pass(time.Second)
	want(3, "new lora")
	a.Refused() // what comes back mostly serves the same
	r.wantServing("lora", "a")
	r.wantServing("old", upstream.ErrNoModel.Error())
}

func TestModels_WhatAnEngineDoesNotTellIsNotKnown(t *testing.T) {
	for name, row := range map[string]struct {
		list string
		want string // may "other" be picked
	}{
		"404":            {"", "a"},
		"garbage":        {"<html>", "a"},
		"too large":      {`{"data":[` + strings.Repeat(" ", facts.MaxModelList) + `]}`, "a"},
		"503":            {"503", upstream.ErrNoModel.Error()},
		"a broken leg":   {"hang up", upstream.ErrNoModel.Error()},
		"an empty list":  {listOf(), upstream.ErrNoModel.Error()},
		"the same again": {listOf("base"), upstream.ErrNoModel.Error()},
	} {
		r := newRig(t)
		a := r.lister(upstream.RoleDecode, "a", "base")
		r.round(a)
		r.wantServing("other", upstream.ErrNoModel.Error())
		a.list.Store(row.list)
		r.pass(modelsEvery)
		r.round(a)
		if got := r.serving(upstream.RoleDecode, "other"); got != row.want {
			t.Errorf("%s: got %q, want %q", name, got, row.want)
		}
	}
}

// An adapter that was loaded since is found before a turn is refused; but no client can have the engines asked more often than
// every five seconds.
func TestRefreshModels_AsksOncePerFiveSeconds(t *testing.T) {
	r := newRig(t)
	var all []*lister
	for _, name := range strings.Fields("a b c d e f g h i j k l m n o p q r s t") {
		all = append(all, r.lister(upstream.RoleDecode, name, "base"))
	}
	down := r.lister(upstream.RoleDecode, "down", "base")
	r.round(append(all, down)...)
	for range health.UnhealthyAfter {
		down.Health.Probed(false)
	}
	all[3].list.Store(listOf("base", "lora"))
	r.wantServing("lora", upstream.ErrNoModel.Error())
	asked := func(want int64) {
		t.Helper()
		for _, l := range all {
			if got := l.asked.Load(); got != want {
				t.Errorf("%s was asked %d times, want %d", l.Name, got, want)
			}
		}
	}
	asked(1)
	var group sync.WaitGroup
	for range 50 {
		group.Go(func() { r.Catalogue.Refresh(t.Context()) })
	}
	group.Wait()
	asked(2)
	r.wantServing("lora", "d")
	r.pass(modelsAgain - time.Second)
	r.Catalogue.Refresh(t.Context())
	asked(2)
	r.pass(time.Second)
	r.Catalogue.Refresh(t.Context())
	asked(3)
	if got := down.asked.Load(); got != 1 {
		t.Errorf("one that is down was asked %d times", got)
	}
}

func TestRefreshModels_AsksAFewAtOnce(t *testing.T) {
	r := newRig(t)
	var now, most atomic.Int64
	gate := make(chan struct{})
	entered := make(chan struct{}, 64) // one per engine, so that none blocks
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n := now.Add(1)
		defer now.Add(-1)
		for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
		}
		entered <- struct{}{}
		<-gate
		_, _ = io.WriteString(w, listOf("m"))
	}))
	defer srv.Close()
	for range 40 {
		r.add(upstream.RoleDecode, string(rune('A'+len(r.instances))), srv.URL)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.Catalogue.Refresh(t.Context())
	}()
	for range modelsAtOnce {
		<-entered
	}
	close(gate)
	<-done
	if got := most.Load(); got > modelsAtOnce {
		t.Errorf("%d lists were read at once, want %d at most", got, modelsAtOnce)
	}
	if got := ids(r.Catalogue.Models()); got != "m" {
		t.Errorf("models: %q", got)
	}
}

// Thousands of engines that serve the same share one set.
func TestModels_EqualListsShareASet(t *testing.T) {
	r := newRig(t)
	a, b := r.lister(upstream.RoleDecode, "a", "x", "y"), r.lister(upstream.RoleDecode, "b", "y", "x")
	c := r.lister(upstream.RoleDecode, "c", "x")
	r.round(a)
	r.round(a, b, c)
	if a.served.Load() != b.served.Load() || a.served.Load() == c.served.Load() {
		t.Error("want one set for a and b, another for c")
	}
}

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
)

// round lets the prober go round once, and waits for what it has begun.
func (r *rig) round() {
	r.probeAll(r.t.Context())
	for e := range r.members.Load().all {
		e.awaitModels(r.t.Context())
	}
}

// wantServing checks which of the engines may be picked for a model: names, or the error.
func (r *rig) wantServing(role upstream.Role, model, want string) {
	r.t.Helper()
	var tried []string
	for {
		e, err := r.Choose(role, Hint{Model: model}, but(tried...))
		if err == nil {
			tried = append(tried, e.Name)
			continue
		}
		slices.Sort(tried)
		got := strings.Join(tried, " ")
		if len(tried) == 0 || !errors.Is(err, upstream.ErrNoInstance) {
			got = err.Error()
		}
		if got != want {
			r.t.Errorf("%q is served by %q, want %q", model, got, want)
		}
		return
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
	r.play("fake d0 d1 p0; d0 lists base lora-1; d1 lists base lora-2; p0 lists lora-3 base")
	none, serving := upstream.ErrNoModel.Error(), func(model, want string) {
		t.Helper()
		r.wantServing(upstream.RoleDecode, model, want)
	}
	serving("unheard of", "d0 d1") // nothing is known yet
	if got := r.Catalogue.Models(); got != nil {
		t.Errorf("before any list: %v", got)
	}
	r.round()
	if got := ids(r.Catalogue.Models()); got != "base lora-1 lora-2 lora-3" {
		t.Errorf("all models: %s", got)
	}
	if got := string(r.Catalogue.Models()[0].Card); got != `{"id":"base","object":"model"}` {
		t.Errorf("the card is %s", got)
	}
	if got := r.engines["d0"].Live().Models; !slices.Equal(got, []string{"base", "lora-1"}) {
		t.Errorf("d0 serves %v", got)
	}
	serving("base", "d0 d1")
	serving("", "d0 d1")
	serving("lora-1", "d0")
	serving("lora-2", "d1")
	serving("lora-3", none)
	r.wantServing(upstream.RolePrefill, "lora-3", "p0")
	// The model is served, but not by an engine that may be picked.
	if _, err := r.Choose(upstream.RoleDecode, Hint{Model: "lora-1"}, but("d0")); !errors.Is(err, upstream.ErrNoInstance) {
		t.Errorf("its only engine is excluded: %v", err)
	}
	r.play("d0 ill; d0 ill")
	serving("lora-1", "d0") // down is no reason to send a turn where its model is not served
	if got := ids(r.Catalogue.Models()); got != "base lora-2 lora-3" {
		t.Errorf("with d0 down: %s", got)
	}
	r.play("set d1 p0")
	serving("lora-1", none)
}

func TestModels_AListIsReadAtEachStartAndEveryHalfMinute(t *testing.T) {
	r := newRig(t)
	e := r.fake("d0")
	for _, row := range []struct {
		script string
		asked  int
		want   string
	}{
		{"d0 says start=1; d0 lists old", 1, "old"},
		{"pass 0s", 1, "old"},
		{"d0 lists new; d0 says start=2", 2, "new"}, // the reading that tells it begins in this round
		{"d0 lists new lora; pass 29s", 2, "new"},
		{"pass 1s", 3, "new lora"},
		{"d0 lists new; pass 5s; d0 refuses", 3, "new lora"}, // what comes back mostly serves the same
	} {
		r.play(row.script)
		r.round()
		if got := r.askedFor("d0/v1/models"); got != row.asked || ids(e.Models()) != row.want {
			t.Errorf("%s: asked %d times for %q, want %d times for %q", row.script, got, ids(e.Models()), row.asked, row.want)
		}
	}
}

func TestModels_WhatAnEngineDoesNotTellIsNotKnown(t *testing.T) {
	none := upstream.ErrNoModel.Error()
	for list, want := range map[string]string{ // may "other" be picked
		"404": "d0", "<html>": "d0", `{"data":[` + strings.Repeat(" ", facts.MaxModelList) + `]}`: "d0", "503": none, "hang-up": none, "": none, "base": none,
	} {
		r := newRig(t)
		r.play("fake d0; d0 lists base")
		r.round()
		r.wantServing(upstream.RoleDecode, "other", none)
		r.list("d0", list)
		r.pass(modelsEvery)
		r.round()
		r.wantServing(upstream.RoleDecode, "other", want)
	}
}

// An adapter that was loaded since is found before a turn is refused; but no client can have the engines asked more often than every five
// seconds.
func TestRefreshModels_AsksOncePerFiveSeconds(t *testing.T) {
	r := newRig(t)
	names := strings.Fields("da db dc dd de df dg dh di dj dk dl dm dn do dp dq dr ds dt")
	r.play("fake d0 " + strings.Join(names, " "))
	for _, name := range append(names, "d0") {
		r.list(name, "base")
	}
	r.round()
	r.play("d0 ill; d0 ill; dd lists base lora")
	r.wantServing(upstream.RoleDecode, "lora", upstream.ErrNoModel.Error())
	asked := func(want int) {
		t.Helper()
		for _, name := range names {
			if got := r.askedFor(name + "/v1/models"); got != want {
				t.Errorf("%s was asked %d times, want %d", name, got, want)
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
	r.wantServing(upstream.RoleDecode, "lora", "dd")
	r.pass(modelsAgain - time.Second)
	r.Catalogue.Refresh(t.Context())
	asked(2)
	r.pass(time.Second)
	r.Catalogue.Refresh(t.Context())
	asked(3)
	if got := r.askedFor("d0/v1/models"); got != 1 {
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
	for n := range 40 {
		r.at("d"+string(rune('A'+n)), srv.URL)
	}
	var group sync.WaitGroup
	group.Go(func() { r.Catalogue.Refresh(t.Context()) })
	for range modelsAtOnce {
		<-entered
	}
	close(gate)
	group.Wait()
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
	r.play("fake d0; d0 lists x y")
	r.round()
	r.play("fake d1 d2; d1 lists y x; d2 lists x")
	r.round()
	set := func(name string) *modelSet { return r.engines[name].served.Load() }
	if set("d0") != set("d1") || set("d0") == set("d2") {
		t.Error("want one set for d0 and d1, another for d2")
	}
}

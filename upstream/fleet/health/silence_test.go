package health

import (
	"strings"
	"testing"
	"time"
)

func TestSilent(t *testing.T) {
	for name, row := range map[string]struct {
		now, waits, heard, limit, refuse int64
		want                             bool
	}{
		"nothing waits":                     {now: 100, limit: 10},
		"nothing waits, heard long ago":     {now: 100, heard: 1, limit: 10},
		"one waits for less than that":      {now: 100, waits: 91, limit: 10},
		"one waits for as long":             {now: 100, waits: 90, limit: 10, want: true},
		"heard before":                      {now: 100, waits: 90, heard: 80, limit: 10, want: true},
		"heard meanwhile":                   {now: 100, waits: 50, heard: 91, limit: 10},
		"heard meanwhile, but long ago":     {now: 100, waits: 50, heard: 90, limit: 10, want: true},
		"its circuit is open":               {now: 100, limit: 10, refuse: 101, want: true},
		"its circuit is half-open":          {now: 101, limit: 10, refuse: 101},
		"half-open, and one waits too long": {now: 101, waits: 80, limit: 10, refuse: 90, want: true},
	} {
		h := &Health{}
		h.waits.Store(row.waits)
		h.heard.Store(row.heard)
		h.limit.Store(row.limit)
		h.refuse.Store(row.refuse)
		if got := h.Silent(time.Duration(row.now)); got != row.want {
			t.Errorf("%s: silent %t, want %t", name, got, row.want)
		}
	}
}

// Several times the longest first byte of late; a short limit of the operator's is a short patience.
func TestSilence_Limit(t *testing.T) {
	for _, row := range []struct{ limit, took, want time.Duration }{
		{300 * time.Second, 0, 10 * time.Second},
		{300 * time.Second, 2 * time.Second, 10 * time.Second},
		{300 * time.Second, 5 * time.Second, 20 * time.Second},
		{300 * time.Second, time.Minute, 40 * time.Second}, // as for ten seconds: it may have hung
		{8 * time.Second, 0, 2 * time.Second},
		{8 * time.Second, time.Second, 4 * time.Second},
	} {
		r := newRole(t, 1)
		h := r.members[0].Health
		answer := func(took time.Duration) {
			w := h.Wait(row.limit)
			r.pass(took)
			w.Heard()
		}
		answer(row.took)
		s := &h.is.silence
		if got := s.limit(); got != row.want || len(s.waiting) > 0 {
			t.Errorf("%v behind a first byte after %v: %v, want %v; %d wait", row.limit, row.took, got, row.want, len(s.waiting))
		}
		for range 50 {
			answer(0)
		}
		if row.took > 0 && s.limit() > 4*row.took && s.limit() != s.least {
			t.Errorf("%v is never forgotten: %v", row.took, s.limit())
		}
	}
}

// silentAfter lets an engine of a role of its own be silent to streams for 11 seconds, and returns it.
func silentAfter(t *testing.T, streams int) (*role, *Health, []Wait) {
	t.Helper()
	r := newRole(t, 1)
	h := r.members[0].Health
	r.pass(time.Second)
	waits := make([]Wait, streams)
	for i := range waits {
		waits[i] = h.Wait(5 * time.Minute)
		r.pass(time.Second)
	}
	if r.pass(10*time.Second - time.Duration(streams)*time.Second); !h.Suspected() || h.Usable() {
		t.Fatal("it is not suspected after ten seconds")
	}
	return r, h, waits
}

func (r *role) silent(i int) bool { return r.members[i].Health.Silent(r.now.Sub(r.born)) }

func TestSilence_AnyLegEndsIt(t *testing.T) {
	r, h, _ := silentAfter(t, 2)
	whole := h.Wait(0)
	h.Probed(true)
	h.Answered() // with headers
	if !r.silent(0) {
		t.Fatal("a health probe or headers of an API server end it")
	}
	if r.logged("level=WARN", "sends nothing to waiting streams") != 1 {
		t.Errorf("the log has\n%s", r.log.String())
	}
	whole.Heard()
	if state, _ := h.State(); state != "up" || h.Suspected() || r.logged("is no longer silent") != 1 {
		t.Errorf("it is %s behind an answer; the log has\n%s", state, r.log.String())
	}
	// The two streams wait for what is their own: a later leg was answered.
	if r.pass(time.Hour); r.silent(0) {
		t.Error("streams that a later leg has overtaken make it silent")
	}
}

// A stream that is in the middle of its answer shows that the engine works, and that what waits longer than it runs waits rightly.
func TestSilence_AnEarlierStreamThatRuns(t *testing.T) {
	r := newRole(t, 1)
	h := r.members[0].Health
	runs := h.Wait(5 * time.Minute)
	runs.Heard()
	r.pass(time.Second)
	waits := h.Wait(5 * time.Minute)
	for range 10 {
		r.pass(9 * time.Second)
		if runs.Heard(); r.silent(0) {
			t.Fatal("it is silent while it works")
		}
	}
	if r.pass(10 * time.Second); !r.silent(0) {
		t.Error("it is not silent although nothing has come for ten seconds")
	}
	if runs.Heard(); r.silent(0) || h.Suspected() {
		t.Error("it is suspected although it goes on")
	}
	waits.Over()
	if !h.Closed() {
		t.Error("a stream that has left a working engine opens the circuit")
	}
}

// The first of those that wait leaves; the engine has not answered therefore. When the last has left, one turn at a time tries it.
func TestSilence_WhoWaitsLeaves(t *testing.T) {
	r, h, waits := silentAfter(t, 2)
	waits[0].Over()
	if !r.silent(0) {
		t.Fatal("it is silent no more because a client has left")
	}
	waits[1].Over()
	waits[1].Over()
	if state, why := h.State(); state != "open" || !strings.Contains(why, "nothing to waiting streams") || !r.silent(0) {
		t.Errorf("with nothing in flight it is %s: %s", state, why)
	}
	for trial := range 3 {
		r.pass(OpenFirst << trial)
		if r.silent(0) || !h.Suspected() {
			t.Fatal("want it to be tried, and its blocks left alone")
		}
		number := uint64(trial + 1)
		h.Begin(number)
		wait := h.Wait(5 * time.Minute)
		if h.Answered(); !r.silent(0) {
			t.Fatal("a second turn tries it, behind the headers of the first")
		}
		r.pass(11 * time.Second)
		wait.Over()
		h.End(number)
		if !r.silent(0) {
			t.Fatalf("trial %d, which was let wait, closes it", trial)
		}
	}
	r.pass(OpenFirst << 3)
	wait := h.Wait(5 * time.Minute)
	wait.Heard()
	if r.silent(0) || h.Suspected() || !h.Closed() {
		t.Error("a byte does not close it")
	}
}

func TestSilence_ARestartEndsIt(t *testing.T) {
	r, h, waits := silentAfter(t, 1)
	if h.Restarted(); r.silent(0) || h.Suspected() {
		t.Error("another process pays for it")
	}
	if waits[0].Over(); !h.Closed() {
		t.Error("a stream of the process before opens the circuit")
	}
}

// What an engine has generated for other clients shows that it works, if it was behind the moment from which on it is silent.
func TestSilence_AnEngineThatGeneratesForOthers(t *testing.T) {
	r, h, waits := silentAfter(t, 1)
	h.Worked(r.now.Add(-11 * time.Second))
	if !r.silent(0) {
		t.Error("what it did before ends it")
	}
	if h.Worked(r.now.Add(-4 * time.Second)); r.silent(0) {
		t.Error("it is silent although it works")
	}
	if r.pass(6 * time.Second); !r.silent(0) {
		t.Error("it works no more, and is not silent")
	}
	waits[0].Over()
	if h.Worked(r.now); r.silent(0) || h.Suspected() {
		t.Error("its circuit stays open although it works")
	}
}

package fleet

import (
	"errors"
	"io"
	"net/http"
	"slices"
	"testing"
	"time"

	"carryover/upstream"
	"carryover/upstream/fleet/facts"
)

func TestLive_IsWhatWasReadLast(t *testing.T) {
	r := newRig(t)
	text := `vllm:num_requests_running{engine="0"} 5
vllm:num_requests_waiting{engine="0"} 2
vllm:kv_cache_usage_perc{engine="0"} 0.5
vllm:cache_config_info{block_size="16",num_gpu_blocks="100"} 1
process_start_time_seconds 5
`
	e := r.engine(upstream.RoleDecode, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) })
	told := seen{}
	r.picking.decode = &told
	if got := e.Live(); !got.Read.IsZero() || got.State != "up" || got.Incarnation != "" {
		t.Errorf("before a reading: %+v", got)
	}
	for range 3 {
		if _, _, err := r.Pick(upstream.RoleDecode, Hint{}, nil); err != nil {
			t.Fatal(err)
		}
	}
	e.Refresh(t.Context())
	got := e.Live()
	got.Read = time.Time{}
	want := Live{State: "up", Incarnation: "5", InFlight: 3, Load: Load{Others: 4, Use: facts.Use{Running: 5, Waiting: 2, Usage: 0.5, KVTokens: 1600}}}
	if got.Models = nil; !equalLive(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	pick := func() upstream.Candidate {
		t.Helper()
		_, done, err := r.Pick(upstream.RoleDecode, Hint{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		done()
		return told.candidates["engine"]
	}
	if c := pick(); c.Others != 4 || c.Waiting != 2 || c.KVUsage != 0.5 || c.InFlight != 3 {
		t.Errorf("the policy was told %+v", c)
	}
	r.pass(loadFor)
	if c := pick(); c.Others != 0 || c.Waiting != 0 || c.KVUsage != 0 {
		t.Errorf("a quarter of a minute later the policy was told %+v", c)
	}
	text = "process_start_time_seconds 5\nvllm:num_requests_running 1\n"
	e.Refresh(t.Context())
	if c := pick(); c.Others != 0 || e.Live().Running != 1 {
		t.Errorf("fewer than are ours: %+v", c)
	}
	e.Refused()
	if got := e.Live(); got.State != "down" || got.Incarnation != "" || got.Running != 0 || !got.Read.IsZero() {
		t.Errorf("after a refusal: %+v", got)
	}
}

func equalLive(a, b Live) bool {
	models := slices.Equal(a.Models, b.Models)
	a.Models, b.Models = nil, nil
	return models && a.State == b.State && a.Incarnation == b.Incarnation && a.InFlight == b.InFlight && a.Others == b.Others &&
		a.Running == b.Running && a.Waiting == b.Waiting && a.Usage == b.Usage && a.KVTokens == b.KVTokens
}

func TestPick_ALimitPerInstance(t *testing.T) {
	w := newWeighing(t)
	freed := 0
	w.OnFreed(func() {
		w.Engines(upstream.RolePrefill) // no lock is held
		w.p[0].Engine().Live()
		freed++
	})
	w.SetMaxInFlight(2)
	if freed != 1 {
		t.Errorf("a changed limit was told %d times", freed)
	}
	pick := func(exclude ...string) (string, func()) {
		t.Helper()
		e, done, err := w.Pick(upstream.RolePrefill, Hint{}, excluding(exclude...))
		if err != nil {
			t.Fatal(err)
		}
		return e.Name, done
	}
	a, done := pick()
	b, _ := pick()
	c, _ := pick()
	_, last := pick()
	if a != "p0" || b != "p0" || c != "p1" {
		t.Errorf("picked %s, %s, %s", a, b, c)
	}
	none := func(want error, exclude func(*Engine) bool) {
		t.Helper()
		if _, _, err := w.Pick(upstream.RolePrefill, Hint{}, exclude); !errors.Is(err, want) {
			t.Errorf("got %v, want %v", err, want)
		}
	}
	none(upstream.ErrBusy, nil)
	none(upstream.ErrBusy, excluding("p0"))
	none(upstream.ErrNoInstance, excluding("p0", "p1"))
	w.p[1].Engine().Refused()
	none(upstream.ErrBusy, nil) // one that is down is no place to wait less
	done()
	if freed != 2 {
		t.Errorf("told %d times, want once more", freed)
	}
	if got, again := pick("p1"); got != "p0" {
		t.Errorf("picked %s", got)
	} else {
		again()
	}
	last()
	w.SetMaxInFlight(0)
	if got, _ := pick(); got != "p0" {
		t.Errorf("without a limit: %s", got)
	}
	freed = 0
	w.Set(w.instances)
	if freed != 1 {
		t.Errorf("changed engines were told %d times", freed)
	}
}

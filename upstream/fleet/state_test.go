package fleet

import (
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"

	"carryover/upstream"
	"carryover/upstream/fleet/facts"
	"carryover/upstream/fleet/health"
)

func TestLive_IsWhatWasReadLast(t *testing.T) {
	r := newRig(t)
	e := r.fake("d0")
	if got := e.Live(); !got.Read.IsZero() || got.State != "up" || got.Incarnation != "" {
		t.Errorf("before a reading: %+v", got)
	}
	r.play(`d begins d0; d begins d0; d begins d0; d0 says start=5 vllm:num_requests_running{engine="0"}=5 vllm:num_requests_waiting{engine="0"}=2 vllm:kv_cache_usage_perc{engine="0"}=0.5 ` +
		`vllm:cache_config_info{block_size="16",num_gpu_blocks="100"}=1; d0 is-read`)
	got, use := e.Live(), facts.Use{Running: 5, Waiting: 2, Short: 2, Usage: 0.5, KVTokens: 1600}
	if got.State != "up" || got.Incarnation != "5" || got.InFlight != 3 || got.Others != 4 || got.Use != use {
		t.Errorf("got %+v, want three attempts of %+v", got, use)
	}
	wantOthers := func(others, waiting int, usage float64) {
		t.Helper()
		r.play("d picks d0")
		if c := r.seen.candidates["d0"]; c.Others != others || c.Waiting != waiting || c.KVUsage != usage || c.InFlight != 3 {
			t.Errorf("the policy was told %+v", c)
		}
	}
	wantOthers(4, 2, 0.5)
	r.pass(loadFor)
	wantOthers(0, 0, 0)
	r.play("d0 says start=5 vllm:num_requests_running=1; d0 is-read")
	wantOthers(0, 0, 0)       // fewer than are ours
	done := e.BeginHandBack() // which is no attempt, and no request of others
	r.play("d0 says start=5 vllm:num_requests_running=6; d0 is-read")
	wantOthers(2, 0, 0)
	r.play("limit 4; d picks d0") // it takes no turn's place
	done()
	r.play("d0 is-read")
	wantOthers(3, 0, 0)
	r.play("d0 refuses")
	if got := e.Live(); got.State != "down" || got.Incarnation != "" || got.Running != 0 || !got.Read.IsZero() {
		t.Errorf("after a refusal: %+v", got)
	}
}

func TestFleet_TellsOperatorsOfItsEngines(t *testing.T) {
	r := newRig(t)
	var told []string
	r.cfg.Tell = func(sentence string) { told = append(told, sentence) }
	r.play("fake d0; d0 says start=5; d0 is-read; d0 is-read; d0 says start=6; d0 is-read; d0 refuses; d0 refuses; d0 answers; d0 fails 5; add p0; set p0; set p0")
	want := []string{
		"Decode instance d0 was restarted: what it held for tickets, and in its prefix cache, is gone.", "Decode instance d0 is down: refuses connections.",
		"Decode instance d0 answers again.", "Decode instance d0 opens its circuit for 1s: 5 legs in a row have failed, the last with broken.",
		"Instances were added: prefill p0; removed: none.", "Instances were added: none; removed: decode d0.",
	}
	if !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
}

func TestUp_CountsWhatHasAnswered(t *testing.T) {
	r := newRig(t)
	srv := httptest.NewServer(answers(http.StatusOK, "process_start_time_seconds 1\n"))
	t.Cleanup(srv.Close)
	e := r.add(upstream.Instance{Name: "d0", BaseURL: srv.URL, Role: upstream.RoleDecode})
	if r.play("d up 0"); r.Started(upstream.RoleDecode) {
		t.Error("an engine that was never asked has started")
	}
	for name, answer := range map[string]func(){
		"a probe": func() { r.probeAll(t.Context()) }, "a reading": func() { e.Refresh(t.Context()) }, "a leg": e.Health.Answered,
	} {
		r.play("d0 refuses; d up 0; pass 2s; d up 0; pass 1h; d up 0")
		if answer(); r.Up(upstream.RoleDecode) != 1 || !r.Started(upstream.RoleDecode) {
			t.Errorf("not up after %s", name)
		}
	}
	r.play("d0 refuses; d up 0")
	if r.Started(upstream.RolePrefill) || !r.Started(upstream.RoleDecode) {
		t.Error("what has started once has not any more, or what never has")
	}
}

func TestPaused_IsAskedWhetherItIsStill(t *testing.T) {
	for name, row := range map[string]struct {
		answer       http.HandlerFunc
		still, later bool // at once, and when it is avoided no more
	}{
		"still paused":   {answers(http.StatusOK, `{"is_paused":true}`), true, true},
		"goes on":        {answers(http.StatusOK, `{"is_paused":false}`), false, false},
		"does not tell":  {answers(http.StatusNotFound, `{}`), true, false},
		"tells nonsense": {answers(http.StatusOK, `{"is_paused":null}`), true, false},
	} {
		r := newRig(t)
		asked := 0
		e := r.serves("d0", func(w http.ResponseWriter, q *http.Request) {
			asked++
			row.answer(w, q)
		})
		if StillPaused(t.Context(), e) || asked != 0 {
			t.Errorf("%s: an engine that has refused nothing is asked, or paused", name)
		}
		if e.Health.Paused(); StillPaused(t.Context(), e) != row.still || e.Health.Pauses() != row.still || asked != 1 {
			t.Errorf("%s: behind its refusal: paused %t, asked %d times; want %t and once", name, e.Health.Pauses(), asked, row.still)
		}
		if r.pass(health.DownFor); StillPaused(t.Context(), e) != row.later || e.Health.Pauses() != row.later {
			t.Errorf("%s: later: paused %t, want %t", name, e.Health.Pauses(), row.later)
		}
	}
}

func TestFleet_DropsIdleConnectionsWhenAnEngineGoes(t *testing.T) {
	for _, goes := range []string{"d0 refuses", "d0 ill; d0 ill", "set p0"} {
		var made atomic.Int32
		srv := httptest.NewUnstartedServer(answers(http.StatusOK, ""))
		srv.Config.ConnState = func(_ net.Conn, state http.ConnState) {
			if state == http.StateNew {
				made.Add(1)
			}
		}
		srv.Start()
		t.Cleanup(srv.Close)
		r := newRig(t)
		e := r.at("p0", srv.URL)
		r.play("add d0")
		for n, then := range []string{"pass 0s", goes, "pass 0s"} {
			e.healthy(t.Context())
			if got := made.Load(); got != int32(1+n/2) {
				t.Errorf("%s, probe %d: %d connections, want one that is used again, and a new one behind it", goes, n, got)
			}
			r.play(then)
		}
	}
}

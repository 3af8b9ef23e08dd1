package vllmsim

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"carryover/upstream/vllmsim/config"
)

// A fault shows in one answer, and the next is unharmed.
func TestFault_OfOneStream(t *testing.T) {
	const done, params, split = "data: [DONE]\n\n", `"kv_transfer_params":{`, ",\ndata: \"usage\":{"
	for _, c := range []struct {
		kind                string
		done, params, split int
	}{{FaultDoubleDone, 2, 1, 0}, {FaultEventAfterDone, 2, 2, 0}, {FaultSplitUsage, 1, 1, 1}} {
		for _, place := range []string{ParamsFinish, config.ParamsUsage, config.ParamsSeparate} {
			i := startInstance(t, func(cfg *Config) { cfg.Params = place })
			must(t, i.SetFault(Fault{Kind: c.kind, Count: 1}))
			request := with(asking("hi"), object{"max_tokens": 4, "stream": true, "stream_options": object{"include_usage": true}, "kv_transfer_params": object{"x": 1}})
			for _, want := range [][3]int{{c.done, c.params, c.split}, {1, 1, 0}} {
				body := string(chat(t, i, request).raw)
				if got := [3]int{strings.Count(body, done), strings.Count(body, params), strings.Count(body, split)}; got != want || !strings.HasSuffix(body, "\n\n"+done) {
					t.Errorf("%s, params at %s: [DONE], params and usage on two lines %v times, want %v: %q", c.kind, place, got, want, body)
				}
			}
		}
	}
}

func TestControl_OverHTTP(t *testing.T) {
	i := startInstance(t, nil)
	post(t, i, "/_sim/faults", object{"kind": FaultStatus, "status": 500, "count": 1}).answers(t, http.StatusOK)
	chat(t, i, asking("hi")).answers(t, http.StatusInternalServerError)
	post(t, i, "/_sim/faults", object{"kind": "x"}).answers(t, http.StatusBadRequest)
	if got := post(t, i, "/_sim/config", object{"sampling": SamplingNoncanonical}); got.status != http.StatusOK || i.config().Sampling != SamplingNoncanonical {
		t.Errorf("switch: %d %s", got.status, got.raw)
	}
	for _, body := range []object{{"sampling": "x"}, {"block_size": 32}} {
		if got := post(t, i, "/_sim/config", body); got.status != http.StatusBadRequest || i.config().BlockSize != 16 {
			t.Errorf("switch to %v: %d, want 400", body, got.status)
		}
	}
	before := i.clock.Now()
	post(t, i, "/_sim/advance", object{"seconds": 480}).answers(t, http.StatusOK)
	post(t, i, "/_sim/advance", object{"seconds": -1}).answers(t, http.StatusBadRequest)
	if passed := i.clock.Now() - before; passed < 480*time.Second {
		t.Errorf("%v have passed, want 480s", passed)
	}
	i.Restart()
	eventually(t, "statistics count the restart", func() bool { return get(t, i, "/_sim/stats").body["restarts"] == 1.0 })
	get(t, i, "/_sim/nothing").answers(t, http.StatusNotFound)
}

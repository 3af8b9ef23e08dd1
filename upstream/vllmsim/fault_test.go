package vllmsim

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"carryover/upstream/vllmsim/wire"
)

// attempt sends a streaming or whole chat request and returns what arrived before err.
func attempt(t *testing.T, i *Instance, stream bool) (status int, header http.Header, body string, err error) {
	t.Helper()
	return attemptAt(t, i, wire.PathChat, with(asking("hi"), object{"max_tokens": 4, "stream": stream, "kv_transfer_params": object{"x": 1}}))
}

func attemptAt(t *testing.T, i *Instance, path string, request object) (status int, header http.Header, body string, err error) {
	t.Helper()
	resp, err := client().Do(newRequest(t, i, path, request))
	if err != nil {
		return 0, nil, "", err
	}
	defer func() { _ = resp.Body.Close() }()
	got, err := io.ReadAll(resp.Body)
	return resp.StatusCode, resp.Header, string(got), err
}

func setFault(t *testing.T, i *Instance, f Fault) {
	t.Helper()
	must(t, i.SetFault(f))
}

func TestFault_SplitUsage(t *testing.T) {
	i := startInstance(t, nil)
	setFault(t, i, Fault{Kind: FaultSplitUsage, Count: 1})
	request := with(asking("hi"), object{"max_tokens": 4, "stream": true, "stream_options": object{"include_usage": true}})
	_, _, body, err := attemptAt(t, i, wire.PathChat, request)
	if err != nil || strings.Count(body, ",\ndata: \"usage\":{") != 1 || !strings.HasSuffix(body, "[DONE]\n\n") {
		t.Errorf("error %v, body %q; want usage on two lines", err, body)
	}
	if _, _, body, err := attemptAt(t, i, wire.PathChat, request); err != nil || strings.Contains(body, ",\ndata: ") {
		t.Errorf("the next request: error %v, body %q; want it unharmed", err, body)
	}
}

func TestFault_NullParamsPinsNothing(t *testing.T) {
	i := startInstance(t, nil)
	setFault(t, i, Fault{Kind: FaultNullParams})
	if _, _, _, err := attempt(t, i, false); err != nil {
		t.Fatal(err)
	}
	expect(t, i, counts{"Pins": 0, "FreeBlocks": i.config().Blocks})
}

func TestControl_AdvancesTheClock(t *testing.T) {
	i := startInstance(t, nil)
	before := i.clock.Now()
	post(t, i, "/_sim/advance", object{"seconds": 480}).answers(t, http.StatusOK)
	after := i.clock.Now()
	if passed := after - before; passed < 480*time.Second {
		t.Errorf("%v have passed, want 480s", passed)
	}
	if got := post(t, i, "/_sim/advance", object{"seconds": -1}); got.status != http.StatusBadRequest || i.clock.Now() < after {
		t.Errorf("back: %d, want 400", got.status)
	}
}

func TestControl_OverHTTP(t *testing.T) {
	i := startInstance(t, nil)
	post(t, i, "/_sim/faults", object{"kind": FaultStatus, "status": 500, "count": 1}).answers(t, http.StatusOK)
	if status, _, _, _ := attempt(t, i, false); status != 500 {
		t.Errorf("with the fault: %d, want 500", status)
	}
	post(t, i, "/_sim/faults", object{"kind": "x"}).answers(t, http.StatusBadRequest)
	if got := post(t, i, "/_sim/config", object{"sampling": SamplingNoncanonical}); got.status != http.StatusOK || i.config().Sampling != SamplingNoncanonical {
		t.Errorf("switch: %d %s", got.status, got.raw)
	}
	for _, body := range []object{{"sampling": "x"}, {"block_size": 32}} {
		if got := post(t, i, "/_sim/config", body); got.status != http.StatusBadRequest || i.config().BlockSize != 16 {
			t.Errorf("switch to %v: %d, want 400", body, got.status)
		}
	}
	i.Restart()
	eventually(t, "statistics count the restart", func() bool { return get(t, i, "/_sim/stats").body["restarts"] == 1.0 })
	get(t, i, "/_sim/nothing").answers(t, http.StatusNotFound)
}

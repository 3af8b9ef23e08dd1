package vllmsim

import (
	"bytes"
	"encoding/gob"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"carryover/upstream/vllmsim/engine"
	"carryover/upstream/vllmsim/wire"
)

func TestConfig_NamesEveryFault(t *testing.T) {
	_, err := Start(Config{Role: "x", Template: "y", Params: "z", Sampling: "s", LoadFailurePolicy: "l", Lease: -1, TimeScale: -1})
	if err == nil {
		t.Fatal("a wrong config is accepted")
	}
	for _, key := range []string{"role", "template", "params", "sampling", "load_failure_policy", "lease", "time_scale"} {
		if !strings.Contains(err.Error(), key) {
			t.Errorf("error does not name %s: %v", key, err)
		}
	}
}

func TestRestart_IsAnotherEngineAtTheSameAddress(t *testing.T) {
	p, d := startPair(t, nil)
	messages, reply := firstTurn(t, p, d)
	started := processStart(t, d)
	d.Restart()
	expect(t, d, counts{"Pins": 0, "FreeBlocks": d.config().Blocks, "Restarts": 1, "Requests": 1})
	if again := processStart(t, d); again == started {
		t.Errorf("process_start_time_seconds is still %s", again)
	}
	if metrics := get(t, d, "/metrics").raw; !bytes.Contains(metrics, []byte("vllm:prompt_tokens_total{engine=\"0\",model_name=\"sim\"} 0.0")) {
		t.Error("metrics outlive the process")
	}
	_, second := turn(t, p, d, messages, nil, object{"cache_salt": "s"})
	if second.params()["remote_engine_id"] == reply.params()["remote_engine_id"] {
		t.Error("the engine id is still the same")
	}
	if second.text() != reply.text() {
		t.Errorf("the same weights say %q and %q", reply.text(), second.text())
	}
}

func processStart(t *testing.T, i *Instance) string {
	t.Helper()
	for line := range strings.Lines(string(get(t, i, "/metrics").raw)) {
		if value, ok := strings.CutPrefix(line, "process_start_time_seconds "); ok {
			return value
		}
	}
	t.Fatal("no process_start_time_seconds")
	return ""
}

// A stream ends with its engine, its instance or its client, and holds nothing then.
func TestStream_IsBrokenOff(t *testing.T) {
	for name, end := range map[string]func(d *Instance){
		"restart": (*Instance).Restart,
		"close":   func(d *Instance) { must(t, d.Close()) },
		"client":  func(*Instance) {},
	} {
		t.Run(name, func(t *testing.T) {
			d := startInstance(t, func(c *Config) { c.Timing.InterToken = time.Hour })
			takeBack := begin(t, d, wire.PathChat, with(asking(longText), object{"stream": true, "kv_transfer_params": object{"x": 1}}))
			becomes(t, d, counts{"GeneratedTokens": 1})
			end(d)
			takeBack()
			becomes(t, d, counts{"Running": 0, "Pins": 0, "FreeBlocks": d.config().Blocks})
			must(t, d.Close())
		})
	}
}

func TestRequests_AreRecorded(t *testing.T) {
	i := startInstance(t, nil)
	post(t, i, "/tokenize", object{"prompt": "hi"})
	get(t, i, "/_sim/stats")
	list := i.Requests()
	if len(list) != 1 || list[0].Path != "/tokenize" || string(list[0].Body) != `{"prompt":"hi"}` || list[0].Header.Get("Content-Type") == "" {
		t.Errorf("recorded %+v, want the one request", list)
	}
	large, err := http.NewRequestWithContext(t.Context(), http.MethodGet, i.URL(), nil)
	must(t, err)
	for range recordedRequests + 5 {
		i.record.add(large, make([]byte, recordedBytes/100))
	}
	if n := len(i.Requests()); n != 100 {
		t.Errorf("%d requests kept, want as many as the bound in bytes allows, 100", n)
	}
}

// duplex joins a reader and a writer.
type duplex struct {
	io.Reader
	io.Writer
}

func FuzzSideChannel_NeverStopsTheEngine(f *testing.F) {
	cfg := DefaultConfig()
	cfg.Blocks = 4
	i, err := Start(cfg)
	must(f, err)
	f.Cleanup(func() { _ = i.Close() })
	e := i.engines()[0]
	var good bytes.Buffer
	enc := gob.NewEncoder(&good)
	for _, req := range []engine.SideRequest{{Op: engine.OpHandshake, EngineID: "x"}, {Op: engine.OpRead, Blocks: []int32{1, -1, 99}, Known: true, Sizes: []int32{1}}, {Op: engine.OpDone, Known: true, Salt: "s"}, {Op: engine.OpHeartbeat}, {Op: 9}} {
		must(f, enc.Encode(req))
	}
	f.Add(good.Bytes())
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, raw []byte) {
		if err := engine.ServeSide(duplex{bytes.NewReader(raw), io.Discard}, func() *engine.Engine { return e }, func(engine.SideRequest) bool { return true }); err == nil {
			t.Error("the connection did not end")
		}
		for _, blocks := range [][]int32{{-1}, {99}} {
			if reply := e.Answer(engine.SideRequest{Op: engine.OpRead, EngineID: e.ID, Blocks: blocks}); reply.Err == "" {
				t.Errorf("block %v outside the memory was read", blocks)
			}
		}
	})
}

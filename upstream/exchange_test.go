package upstream

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"carryover/upstream/vllmsim"
)

// exchange is one file of testdata/exchanges.
type exchange struct {
	Request struct {
		Body json.RawMessage `json:"body"`
	} `json:"request"`
	Response struct {
		Status int             `json:"status"`
		JSON   json.RawMessage `json:"json"`
	} `json:"response"`
}

func recordedText(tb testing.TB, name string) []byte {
	tb.Helper()
	raw, err := os.ReadFile(filepath.Join("..", "testdata", "exchanges", "vllm-0.32", name))
	if err != nil {
		tb.Fatal(err)
	}
	return raw
}

func recorded(tb testing.TB, name string) exchange {
	tb.Helper()
	var e exchange
	if err := json.Unmarshal(recordedText(tb, name), &e); err != nil {
		tb.Fatal(err)
	}
	return e
}

// simulate starts a simulated engine and returns it as an instance too.
func simulate(t *testing.T, role Role, change func(*vllmsim.Config)) (*vllmsim.Instance, *Instance) {
	t.Helper()
	cfg := vllmsim.DefaultConfig()
	if change != nil {
		change(&cfg)
	}
	sim, err := vllmsim.Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := sim.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	instance, err := NewInstance(role, "sim", sim.URL())
	if err != nil {
		t.Fatal(err)
	}
	return sim, &instance
}

// paths returns the paths that a simulated engine was asked for.
func paths(sim *vllmsim.Instance) (list []string) {
	for _, r := range sim.Requests() {
		list = append(list, r.Path)
	}
	return list
}

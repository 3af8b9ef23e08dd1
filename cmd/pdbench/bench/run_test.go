package bench

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"carryover/cmd/pdbench/contender"
	"carryover/cmd/pdbench/engines"
	"carryover/cmd/pdbench/load"
)

// testSite is one whose program is the test binary.
func testSite(t *testing.T) contender.Site {
	t.Helper()
	return contender.Site{Self: []string{os.Args[0]}, Variables: []string{programVariable + "=1"}, Logs: t.TempDir()}
}

// A run of what needs nothing but Go: the ways are short, and what is measured is not looked at, but that nothing goes wrong.
func TestMeasure_DirectRelayAndCarryover(t *testing.T) {
	s := testSite(t)
	names := []string{contender.Direct, contender.Relay}
	if !testing.Short() {
		s.Carryover = filepath.Join(t.TempDir(), "carryover")
		if text, err := exec.CommandContext(t.Context(), "go", "build", "-o", s.Carryover, "../../carryover").CombinedOutput(); err != nil {
			t.Fatalf("build: %v: %s", err, text)
		}
		names = append(names, contender.Carryover)
	}
	var todo []group
	for _, g := range brief(groups()) {
		for i := range g.workloads {
			w := &g.workloads[i]
			w.Contenders, w.Gap = names, max(w.Gap, 5*time.Millisecond) // without pauses the machine is busy throughout
		}
		todo = append(todo, g)
	}
	var said strings.Builder
	b := &bench{site: &s, say: &said}
	results, err := b.measureAll(t.Context(), only(todo, []string{w1, w1Whole, w2s, w2sOlder, w5Small, tChunks}, nil))
	if err != nil || len(results) != 6*len(names) {
		t.Fatalf("%d results, %v\n%s", len(results), err, said.String())
	}
	for _, r := range results {
		if len(r.Wrong) > 0 || r.NotMeasured != "" || len(r.Rounds) != 1 {
			t.Errorf("%s at %s: %+v", r.Contender, r.Workload.Name, r)
		}
		if r.Contender != contender.Direct && r.Median[peakMB] <= 0 {
			t.Errorf("%s at %s: no memory was read: %v", r.Contender, r.Workload.Name, r.Median)
		}
	}
}

func TestEnter_SaysWhatIsNotMeasured(t *testing.T) {
	s := testSite(t)
	b := &bench{site: &s, say: io.Discard}
	enter := func(name string) (*cell, error) {
		return b.enter(t.Context(), load.Workload{Name: "x"}, name, &engines.Pair{Prefill: "http://127.0.0.1:1", Decode: "http://127.0.0.1:1"})
	}
	c, err := enter(contender.Python)
	if err != nil || !strings.Contains(c.entry.NotMeasured, "--python-example") {
		t.Errorf("without its file: %+v, %v", c, err)
	}
	s.PythonExample, s.Python = "example.py", filepath.Join(t.TempDir(), "none")
	if c, err = enter(contender.Python); err != nil || !strings.Contains(c.entry.NotMeasured, "need-bench-python.sh") {
		t.Errorf("without its environment: %+v, %v", c, err)
	}
	s.Carryover = "/bin/true"
	if err := b.measure(t.Context(), c); err != nil || len(c.entry.Rounds) > 0 {
		t.Errorf("what is not measured was measured: %+v, %v", c.entry, err)
	}
	c.in.Stop()
	if _, err := enter("none"); err == nil {
		t.Error("there is a contender none")
	}
	if _, err := enter(contender.Carryover); err == nil || !strings.Contains(err.Error(), "has ended") {
		t.Errorf("a program that ends at once: %v", err)
	}
}

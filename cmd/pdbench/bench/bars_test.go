package bench

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"carryover/cmd/pdbench/contender"
	"carryover/cmd/pdbench/engines"
	"carryover/cmd/pdbench/load"
	"carryover/cmd/pdbench/result"
)

// standing is what a run could come to in which carryover takes c times as long as it must at most for anything.
func standing(c float64) []entry {
	median := func(name string) figures {
		f := figures{cpuTurn: 100, cpuChunk: 20, turnRate: 1000, chunkRate: 50000, firstP50: 500, gapP99: 21, streamKB: 20, peakMB: 200}
		switch name {
		case contender.Carryover:
			f = figures{cpuTurn: 100 * c, cpuChunk: 20 * c, turnRate: 900 / c, chunkRate: 49900 / c, firstP50: 600 * c, gapP99: 21 * c, streamKB: 20 * c, peakMB: 200 * c}
		case contender.Direct:
			delete(f, cpuTurn)
			delete(f, cpuChunk)
		case contender.Python:
			f[cpuTurn], f[cpuChunk], f[firstP50] = 3000, 140, 2500
		}
		return f
	}
	var results []entry
	for _, g := range groups() {
		for _, w := range g.workloads {
			for _, name := range w.Contenders {
				results = append(results, entry{Workload: w, Contender: name, Median: median(name)})
			}
		}
	}
	return results
}

func words(verdicts []verdict) map[word]int {
	count := map[word]int{}
	for _, v := range verdicts {
		count[v.Word]++
	}
	return count
}

func TestJudge(t *testing.T) {
	good := judge(standing(1))
	if got := words(good); got[reached]+got[holds] != len(bars()) {
		t.Errorf("a good run: %v", got)
	}
	if code := (report{Verdicts: good}).exit(); code != result.ExitOK {
		t.Errorf("a good run ends with %d", code)
	}
	bad := judge(standing(10))
	for _, v := range bad {
		// A difference of two of ours, or a ratio of them, is as it was or ten times as large.
		if v.Must != 0 && v.Word != fails && !strings.Contains(v.How, "carryover at") {
			t.Errorf("%s: %g %s", v.Name, v.Value, v.Word)
		}
		if v.Must == 0 && v.Word != short {
			t.Errorf("%s: %g %s", v.Name, v.Value, v.Word)
		}
	}
	if code := (report{Verdicts: bad}).exit(); code != result.ExitFailed {
		t.Errorf("a bad run ends with %d", code)
	}
}

func TestJudge_WithoutPythonItsBarsAreNotMeasured(t *testing.T) {
	results := standing(1)
	for i := range results {
		if results[i].Contender == contender.Python {
			results[i].Median, results[i].NotMeasured = nil, "no file"
		}
	}
	verdicts := judge(results)
	for _, v := range verdicts {
		if ofPython := strings.Contains(v.Name, "python"); ofPython != (v.Word == notMeasured) {
			t.Errorf("%s: %s", v.Name, v.Word)
		}
	}
	if code := (report{Results: results, Verdicts: verdicts}).exit(); code != result.ExitNotMeasured {
		t.Errorf("got %d, want %d", code, result.ExitNotMeasured)
	}
}

func TestJudge_AFigureThatDoesNotCountFails(t *testing.T) {
	results := standing(1)
	for i := range results {
		if results[i].Contender == contender.Direct && results[i].Workload.Name == w1 {
			results[i].add(load.Outcome{Wall: 1, Turns: 10, Faults: engines.Faults{MixUps: 1}})
		}
	}
	verdicts := judge(results)
	if got := words(verdicts); got[doesNotCount] != 1 {
		t.Errorf("got %v", got)
	}
	if code := (report{Results: results, Verdicts: verdicts}).exit(); code != result.ExitFailed {
		t.Errorf("got %d, want %d", code, result.ExitFailed)
	}
	if code := (report{Results: results}).exit(); code != result.ExitFailed {
		t.Errorf("in a smoke run: got %d, want %d", code, result.ExitFailed)
	}
}

// A fault weighs more than what is not measured, whichever comes first.
func TestReader_RemembersTheWorst(t *testing.T) {
	wrong := entry{Workload: load.Workload{Name: "a"}, Contender: contender.Carryover, Wrong: []string{"mixed up"}}
	r := &reader{results: []entry{wrong}}
	if v := r.get("b", contender.Nginx, cpuTurn) / r.get("a", contender.Carryover, cpuTurn); !math.IsNaN(v) || r.missing.Word != doesNotCount {
		t.Errorf("got %g, %+v", v, r.missing)
	}
	r.get("b", contender.Nginx, cpuTurn)
	if r.missing.Word != doesNotCount {
		t.Errorf("got %+v", r.missing)
	}
}

func TestJudge_DividedByNothing(t *testing.T) {
	results := standing(1)
	for i := range results {
		if results[i].Contender == contender.Nginx {
			results[i].Median[cpuTurn] = 0
		}
	}
	verdicts := judge(results)
	if _, err := json.Marshal(verdicts); err != nil || words(verdicts)[doesNotCount] != 1 {
		t.Errorf("got %v, %v", words(verdicts), err)
	}
}

package bench

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"carryover/cmd/pdbench/contender"
	"carryover/cmd/pdbench/load"
)

func TestAdd_SaysWhatIsWrong(t *testing.T) {
	full := load.Outcome{Wall: time.Second, Turns: 10, Chunks: 160, Hits: 9, Streams: 5}
	plain, nameless := load.Workload{Turns: 8, Chunks: 16}, load.Workload{Turns: 8, Chunks: 16, Nameless: true}
	tests := []struct {
		name     string
		workload load.Workload
		change   func(*load.Outcome)
		want     string
	}{
		{"nothing", plain, func(*load.Outcome) {}, ""},
		{"errors", plain, func(o *load.Outcome) { o.Errors = 2 }, "2 errors"},
		{"mix-ups", plain, func(o *load.Outcome) { o.Faults.MixUps = 1 }, "1 mix-ups"},
		{"leaks", plain, func(o *load.Outcome) { o.Faults.Leaks = 3 }, "3 leaks"},
		{"no answers", nameless, func(o *load.Outcome) { o.Turns, o.Chunks = 0, 0 }, "no answers"},
		{"no hits", plain, func(o *load.Outcome) { o.Hits = 0 }, "no turn has reused anything"},
		{"no hits in so few turns", load.Workload{Conversations: 5, Turns: 8, Chunks: 16}, func(o *load.Outcome) { o.Hits = 0 }, ""},
		{"no hits where none can be", nameless, func(o *load.Outcome) { o.Hits = 0 }, ""},
		{"streams that were not opened", load.Workload{Conversations: 6, Open: true, Gap: 1}, func(*load.Outcome) {}, "5 of 6 streams"},
	}
	for _, tt := range tests {
		o := full
		tt.change(&o)
		r := entry{Workload: tt.workload, Contender: contender.Carryover}
		r.add(o)
		if got := strings.Join(r.Wrong, "; "); (tt.want == "") != (got == "") || !strings.Contains(got, tt.want) {
			t.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
	r := entry{Workload: plain, Contender: contender.Nginx}
	full.Hits = 0
	if r.add(full); len(r.Wrong) > 0 {
		t.Errorf("nginx hands nothing over: %v", r.Wrong)
	}
}

func sample() report {
	results := standing(1)
	for i := range results {
		switch r := &results[i]; {
		case r.Contender == contender.Relay:
			r.Median, r.NotMeasured = nil, "has no <flag> & no \"other\""
		case r.Workload.Name == w4 && r.Contender == contender.Nginx:
			r.Wrong = []string{"round 1: 2 errors"}
		}
	}
	return report{Began: time.Unix(0, 0).UTC(), Took: time.Minute, Machine: machine{Cores: 2, Model: "<& processor>"}, Results: results, Verdicts: judge(results)}
}

func TestMarkdown(t *testing.T) {
	text := sample().markdown()
	for _, want := range []string{"1970-01-01 00:00 UTC, in 1m0s", "2 cores of <& processor>", "≤ 1/18", "≥ 0.97", "≤ 45.0 ms", "not measured", "does not count",
		"- relay is not measured: has no", "- nginx at W4 does not count: round 1: 2 errors"} {
		if !strings.Contains(text, want) {
			t.Errorf("nothing says %q", want)
		}
	}
	var width int
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "|") {
			width = 0
			continue
		}
		if width != 0 && width != utf8.RuneCountInString(line) {
			t.Errorf("%q does not stand under the lines before", line)
		}
		width = utf8.RuneCountInString(line)
	}
}

func TestReport_IsReadAsItWasWritten(t *testing.T) {
	base := filepath.Join(t.TempDir(), "bench")
	want := sample()
	if err := want.write(base); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(base + ".json")
	var got report
	if err != nil || json.Unmarshal(text, &got) != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
	if markdown, err := os.ReadFile(base + ".md"); err != nil || string(markdown) != want.markdown() {
		t.Errorf("got %s, %v", markdown, err)
	}
}

package e2e

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// familiesFile lists all families of /metrics but those of Go and the process: name, kind, when it appears, labels. "start" families are
// there as soon as instances have been read, "later" ones with their first measurement, "redis" ones where replicas share tickets.
const familiesFile = "testdata/metrics.txt"

// family is a line of the list.
type family struct{ name, kind, appears, labels string }

// listedFamilies reads the list.
func listedFamilies(t *testing.T) (all []family) {
	t.Helper()
	text, err := os.ReadFile(familiesFile)
	noError(t, err)
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) == 4 && !strings.HasPrefix(line, "#") {
			all = append(all, family{fields[0], fields[1], fields[2], fields[3]})
		}
	}
	return all
}

var labelName = regexp.MustCompile(`([a-z_]+)="`)

// families are those of a text, with the labels that any of their series has, but for the bounds of buckets.
func (s scraped) families() (all []family) {
	for name, kind := range s.kinds {
		if strings.HasPrefix(name, "go_") || strings.HasPrefix(name, "process_") || name == "target_info" {
			continue
		}
		var labels []string
		for series := range s.series {
			bare, rest, _ := strings.Cut(series, "{")
			if bare == name || kind == "histogram" && (bare == name+"_bucket" || bare == name+"_count") {
				for _, found := range labelName.FindAllStringSubmatch(rest, -1) {
					labels = append(labels, found[1])
				}
			}
		}
		slices.Sort(labels)
		labels = slices.DeleteFunc(slices.Compact(labels), func(label string) bool { return label == "le" })
		if len(labels) == 0 {
			labels = []string{"-"}
		}
		all = append(all, family{name: name, kind: kind, labels: strings.Join(labels, ",")})
	}
	return all
}

// wantFamilies compares a text with the list; appears says which families it must have.
func wantFamilies(t *testing.T, s scraped, appears ...string) {
	t.Helper()
	got := s.families()
	for _, f := range listedFamilies(t) {
		at := slices.IndexFunc(got, func(g family) bool { return g.name == f.name })
		switch {
		case at < 0 && slices.Contains(appears, f.appears):
			t.Errorf("%s is not there", f.name)
		case at < 0:
		case got[at].kind != f.kind || slices.Contains(appears, "later") && got[at].labels != f.labels:
			t.Errorf("got %+v, want %+v", got[at], f)
		}
		if at >= 0 {
			got = slices.Delete(got, at, at+1)
		}
	}
	for _, g := range got {
		t.Error(fmt.Sprint(g), "is not in the list")
	}
}

// The dashboard shows each figure of what reuse is worth.
func TestMetrics_TheDashboardShowsReuse(t *testing.T) {
	board, err := os.ReadFile("../../../scripts/observability/grafana/dashboards/reuse.json")
	noError(t, err)
	for _, f := range listedFamilies(t) {
		if strings.HasPrefix(f.name, "carryover_reuse_") && !strings.Contains(string(board), f.name) {
			t.Errorf("%s is on no panel", f.name)
		}
	}
}

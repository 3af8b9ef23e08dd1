package upstream

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"carryover/upstream/body"
)

func TestVersions_ReleaseOf(t *testing.T) {
	for version, want := range map[string]string{
		"0.28.0": "0.28", "0.29.1": "0.28", "0.30.0+cpu": "0.30", "0.32.0": "0.32", "v0.33.0": "0.33", "0.33.1.dev3+gabc": "0.33", "0.41.0": "0.33", "1.0.0": "0.33",
		"0.27.9": "", "": "", "dev": "", "0": "", "0.x.1": "", "-1.33.0": "",
	} {
		if got, ok := ReleaseOf(version); got != want || ok != (want != "") {
			t.Errorf("%q is %q, %v, want %q", version, got, ok, want)
		}
	}
}

// FuzzReleaseOf reads versions as engines may tell them: what is known of one is in the list, and has a row for each API and form.
func FuzzReleaseOf(f *testing.F) {
	f.Fuzz(func(t *testing.T, version string) {
		release, ok := ReleaseOf(version)
		if ok != slices.Contains(Releases(), release) {
			t.Errorf("%q is %+v, %v", version, release, ok)
		}
		for api := range body.API(body.APIs) {
			for _, stream := range []bool{true, false} {
				if row, known := AnswersOf(version, api, stream); known != ok || row.Release != release || ok && row.API != api {
					t.Errorf("%q: %+v, %v", version, row, known)
				}
			}
		}
		if why, fix := WhyNoParams(version); why == "" || fix == "" {
			t.Errorf("%q has no advice", version)
		}
	})
}

// No advice names what does not help.
func TestVersions_AdviceHelps(t *testing.T) {
	for _, c := range []struct {
		version     string
		with, never []string
	}{
		{"0.32.0", []string{"0.32.0", "version 1.0"}, []string{"Rust", "bidirectional"}},
		{"0.33.0", []string{"0.33.0", "Rust front end", "no plug-in"}, []string{"pip install", "bidirectional"}},
		{"", []string{"before 0.33", "version 1.0", "0.33 has them by itself", "bidirectional_kv_xfer"}, nil},
	} {
		why, fix := WhyNoParams(c.version)
		for _, part := range c.with {
			if !strings.Contains(why+fix, part) {
				t.Errorf("%+v: %q lacks %q", c, why+"; "+fix, part)
			}
		}
		for _, part := range c.never {
			if strings.Contains(why+fix, part) {
				t.Errorf("%+v: %q says %q", c, why+"; "+fix, part)
			}
		}
	}
}

// docs/getting-started.md has the table of the code. What the test prints is to be put there.
func TestVersions_GettingStartedHasTheTable(t *testing.T) {
	page, err := os.ReadFile("../docs/getting-started.md")
	must(t, err)
	if table := versionTable(); !strings.Contains(string(page), "\n"+table+"\n") {
		t.Errorf("docs/getting-started.md lacks the table of engine versions as it is in upstream/versions.go:\n%s", table)
	}
}

// answerTable returns a row for each release, API and form.
func answerTable() (rows []AnswerFacts) {
	for _, release := range Releases() {
		for api := range body.API(body.APIs) {
			for _, stream := range []bool{false, true} {
				row, _ := AnswersOf(release, api, stream)
				rows = append(rows, row)
			}
		}
	}
	return rows
}

// versionTable returns [answerTable] as a Markdown table, a line for each API and form. Releases with equal columns
// share one.
func versionTable() string {
	columns := map[string][]string{} // by release, the cells of a column
	names := []string{}              // of columns, each the releases that share it
	for _, release := range Releases() {
		var cells []string
		for _, row := range answerTable() {
			if row.Release == release {
				cells = append(cells, row.cell())
			}
		}
		if last := len(names) - 1; last >= 0 && slices.Equal(columns[names[last]], cells) {
			shared := names[last] + ", " + release
			columns[shared], names[last] = cells, shared
			continue
		}
		columns[release], names = cells, append(names, release)
	}
	var b strings.Builder
	b.WriteString("| answers of | ")
	b.WriteString(strings.Join(names, " | "))
	b.WriteString(" |\n|---|" + strings.Repeat("---|", len(names)) + "\n")
	for n, row := range answerTable()[:2*body.APIs] {
		fmt.Fprintf(&b, "| `%s`, %s |", row.API.Path(), map[bool]string{false: "whole", true: "stream"}[row.Stream])
		for _, name := range names {
			b.WriteString(" " + columns[name][n] + " |")
		}
		b.WriteString("\n")
	}
	return b.String()
}

// cell returns the text of a row's cell.
func (r AnswerFacts) cell() string {
	text := "params, no ids"
	if r.IDs != "" {
		text = "params, ids by `" + r.IDs + "`"
	}
	if !r.Params {
		text = "no " + text
	}
	if r.PlugIn != "" {
		text += "; both with plug-in " + r.PlugIn
	}
	return text
}

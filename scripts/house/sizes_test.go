package main

import (
	"slices"
	"strings"
	"testing"
)

func TestSizes(t *testing.T) {
	all := []part{{"product", 12, 2, isProduct}, {"core", 5, 0, isCore}, {"tests", 6, 0, isTest}, {"benches", 4, 0, isBench}}
	lines := strings.Repeat("//\n", 4) + "package a\n"
	for name, c := range map[string]struct {
		files map[string]string
		want  []string // all faults, in their order
	}{
		"sizes at their limits": {map[string]string{
			"a.go": "package a\n", "server/a.go": "package server\n\n// Comments and semicolons are free.\nfunc a() { return; return }\n",
			"server/a_test.go": "package a\n", "server/atest/a.go": "package a\n", "scripts/x/a_test.go": "package a\n",
			"upstream/vllmsim/a.go": "package a\n", "cmd/pdbench/load/a.go": "package a\n", "scripts/x/a.go": "package a\n\nvar a, b, c int\n",
			"testdata/a.go": "package a\n\nvar a, b, c, d, e, f, g int\n", ".tools/a.go": "package a\n\nvar a, b, c, d, e, f, g int\n",
		}, nil},
		"sizes above their limits": {map[string]string{
			"server/a.go": "package server\n\nfunc a() { return; return }\n", "cmd/carryover/a.go": "package a\n\nvar a int\n",
			"server/a_test.go": "package a\n\nvar a int\n", "server/testrig/a.go": "package a\n",
			"upstream/vllmsim/api/a.go": "package a\n\nvar a int\n",
		}, []string{"product: 15 tokens, at most 12", "tests: 7 tokens, at most 6", "benches: 5 tokens, at most 4"}},
		"too many files": {map[string]string{"a.go": "package a\n", "b.go": "package a\n", "server/pins/a.go": "package a\n"}, []string{"product: 3 files, at most 2"}},
		"a core above its limit": {map[string]string{
			"server/pins/a.go": "package a\n\nvar a int\n", "server/turn/a.go": "package a\n", "server/turn/a_test.go": "package a\n",
		}, []string{"core: 7 tokens, at most 5"}},
		"files of all parts": {map[string]string{
			"server/a.go": lines, "server/b.go": lines + "\n", "scripts/a.go": lines + "\n", "server/b_test.go": lines + "\n",
		}, []string{"scripts/a.go: 6 lines, at most 5", "server/b.go: 6 lines, at most 5"}},
	} {
		t.Run(name, func(t *testing.T) {
			faults, err := sizes(all, 5)(tree(t, c.files))
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(faults, c.want) {
				t.Errorf("faults %q, want %q", faults, c.want)
			}
		})
	}
}

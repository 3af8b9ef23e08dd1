package main

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// small are bounds that a few lines exceed.
func small() bounds {
	return bounds{
		most:    map[measure]int{packageLines: 9, fileLines: 6, typeMethods: 1, structFields: 2, turnUses: 0, productLines: 12},
		folders: map[string]int{"own": 3},
		product: func(folder string) bool { return strings.HasPrefix(folder, "product") },
		turns:   []string{"server.turn", "server/turn.Turn"}, turnsIn: "server/turn",
	}
}

func file(name string, lines int) string {
	return "package " + name + "\n" + strings.Repeat("//\n", lines-1)
}

func TestSizes(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string // "over" is the list
		want  []string          // all faults, in their order
	}{
		"sizes at their limits": {map[string]string{
			"a/a.go": file("a", 6), "a/b.go": file("a", 3), "own/a.go": file("own", 3), "product/x/a.go": file("x", 6), "product/b.go": file("product", 6),
			"b/a.go": "package b\n\ntype t struct{ a, b int }\n\nfunc (t) m() {}\n",
		}, nil},
		"what is for tests": {map[string]string{
			"a/a_test.go": file("a", 20), "a/atest/a.go": file("atest", 20), "a/testdata/a.go": file("a", 20), "a/testrig/a.go": file("testrig", 20),
		}, nil},
		"sizes above their limits": {map[string]string{
			"a/a.go": file("a", 7), "a/b.go": file("a", 3), "own/a.go": file("own", 4), "product/x/a.go": file("x", 6), "product/b.go": file("product", 6), "productive/a.go": file("productive", 1),
			"b/a.go": "package b\n\ntype t struct{ a, b, c int }\n\nfunc (t) m() {}\n", "b/b.go": "package b\n\nfunc (x *t) n() {}\n",
		}, []string{
			"a/a.go: file-lines 7, at most 6", "a: package-lines 10, at most 9", "own: package-lines 4, at most 3", "all: product-lines 13, at most 12",
			"b.t: struct-fields 3, at most 2", "b.t: type-methods 2, at most 1",
		}},
		"generic types and types within": {map[string]string{
			"a/a.go": "package a\n\ntype t[X any] struct{ a int; b struct{ c, d X } }\n\nfunc (*t[X]) m() {}\nfunc (t[Y]) n() {}\n",
		}, []string{"a.t: struct-fields 4", "a.t: type-methods 2"}},
		"exceptions": {map[string]string{
			"a/a.go": file("a", 6), "a/b.go": file("a", 4), "over": "# a reason\n\npackage-lines a 10\n",
		}, nil},
		"exceptions that rose": {map[string]string{
			"a/a.go": file("a", 6), "a/b.go": file("a", 5), "over": "package-lines a 10\n",
		}, []string{"a: package-lines 11, at most 9, and over has it with 10"}},
		"wire formats, configuration and counters": {map[string]string{
			"a/a.go": "package a\n\ntype w struct {\n\tA, B int `json:\"a\"`\n\tC int `yaml:\"c,omitempty\"`\n\tlocal int }\n",
			"b/a.go": "package b\n\ntype bConfig struct { A, B, C int; D func(chan int); Common }\n",
			"c/a.go": "package c\n\ntype seen struct { a, b atomic.Int64; c metric.Int64Counter }\n",
		}, nil},
		"what only looks like them": {map[string]string{
			"a/a.go": "package a\n\ntype w struct { a, b int `json:\"a\"`; C int `json:\"-\"` }\n",
			"b/a.go": "package b\n\ntype bConfig struct { A, B int; c int }\ntype lockConfig struct { A, B int; C *sync.Mutex }\n",
			"c/a.go": "package c\n\ntype chanSettings struct { A, B int; C []chan int }\ntype seen struct { a, b atomic.Int64; c atomic.Pointer[int] }\n",
			"d/a.go": "package d\n\ntype mixed struct { A, B, C, D int `json:\"a\"`; x, y, z int }\n",
		}, []string{"a.w: struct-fields 3", "b.bConfig", "b.lockConfig", "c.chanSettings", "c.seen", "d.mixed: struct-fields 7"}},
		"the turn where it is at home": {map[string]string{
			"server/turn/a.go": "package turn\n\nfunc a(*Turn, turn) {}\n", "a/a.go": "package a\n\nfunc a(*turn, record.Turn) {}\n",
			"server/a.go": "package server\n\nfunc (t *turn) a() *turn { return t }\n",
		}, nil},
		"the turn elsewhere": {map[string]string{
			"server/a.go": "package server\n\nfunc a(x, y *turn) { _ = func(turn) {} }\n",
			"a/a.go":      "package a\n\nimport \"m/server/turn\"\n\ntype a struct{ t *turn.Turn }\n",
			"b/a.go":      "package b\n\nimport old \"m/server/turn\"\n\nvar b func(old.Turn)\n",
		}, []string{"a: turn-uses 1", "b: turn-uses 1", "server: turn-uses 3"}},
	} {
		t.Run(name, func(t *testing.T) {
			if c.files["over"] == "" {
				c.files["over"] = "# nothing\n"
			}
			faults, err := sizes(small(), "over", func(string) {})(tree(t, c.files))
			if err != nil {
				t.Fatal(err)
			}
			if !slices.EqualFunc(faults, c.want, strings.HasPrefix) {
				t.Errorf("faults %q, want %q", faults, c.want)
			}
		})
	}
}

// A row that could be lowered or left out is a hint and no fault: others may have made the code smaller a minute ago.
func TestSizes_HintsAtRows(t *testing.T) {
	var hints []string
	faults, err := sizes(small(), "over", func(text string) { hints = append(hints, text) })(tree(t, map[string]string{
		"a/a.go": file("a", 5), "a/b.go": file("a", 5), "b/b.go": file("b", 5),
		"c/c.go": "package c\n\ntype c struct{ a, b, c, d int }\ntype d struct{ a, b, c, d int }\n",
		"over":   "package-lines a 111\npackage-lines b 5\nstruct-fields c.c 6\nstruct-fields c.d 7\npackage-lines gone 5\n",
	}))
	want := []string{"package-lines a has fallen from 111 to 10", "package-lines b is within its limit of 9", "struct-fields c.d has fallen", "package-lines gone does not exist"}
	if err != nil || len(faults) > 0 || !slices.EqualFunc(hints, want, strings.Contains) {
		t.Errorf("hints %q, faults %q, error %v; want %q", hints, faults, err, want)
	}
}

func TestSizes_ListThatCannotBeRead(t *testing.T) {
	for _, list := range []string{"package-lines a\n", "package-lines a many\n", "package-lines a 10\npackage-lines a 11\n"} {
		if listed, err := exceptions(filepath.Join(tree(t, map[string]string{"over": list}), "over")); err == nil {
			t.Errorf("%q is %v", list, listed)
		}
	}
}

// The limits of this repository concern what they should.
func TestSizes_OfThisRepository(t *testing.T) {
	b := limits()
	for _, c := range []struct {
		of   measured
		want int
	}{
		{measured{packageLines, "server", 0}, 1600}, {measured{packageLines, "server/turn", 0}, 3000}, {measured{structFields, "server", 0}, 12},
	} {
		if got := b.of(c.of); got != c.want {
			t.Errorf("%v is bounded by %d, want %d", c.of, got, c.want)
		}
	}
	for folder, want := range map[string]bool{
		"server": true, "upstream/fleet": true, "cmd/carryover": true, "cmd/pdbench": false, "upstream/vllmsim": false, "upstream/vllmsim/engine": false, "scripts/house": false, ".": false,
	} {
		if got := b.product(folder); got != want {
			t.Errorf("product of %s is %v", folder, got)
		}
	}
	if listed, err := exceptions("over.txt"); err != nil {
		t.Errorf("%v: %v", listed, err)
	}
}

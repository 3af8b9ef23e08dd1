package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// tree writes files below a new folder.
func tree(t *testing.T, files map[string]string) (root string) {
	t.Helper()
	root = t.TempDir()
	for name, text := range files {
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

const glossary = "# Page\n\n## Words\n\nOne word for one thing.\n\n| word | meaning |\n|---|---|\n| turn | a request |\n| leg | a call |\n\n## More\n\n| another | table |\n|---|---|\n| a | b |\n| c | d |\n"

// Each figure passes a tree that keeps it, and names what breaks it in one that does not.
func TestFigures_EachCanFail(t *testing.T) {
	fleet := []word{
		{old: "Start", use: "Incarnation", in: []string{"upstream/fleet"}, kinds: []kind{ofType}, whole: true},
		{old: "barred", use: "quarantined", in: []string{"upstream/..."}},
		{old: "turn.tries", use: "retry"},
		{old: "turn.h", use: "t"},
		{old: "told_late", use: "reported_late", in: []string{"server"}, kinds: []kind{ofText}},
	}
	const workflow = "jobs:\n  a:\n    steps:\n      - run: make check\n  b:\n    strategy:\n      matrix:\n        target: [page, clients]\n        more:\n          - pair VLLM=0.33.0\n"
	const makefile = "check: fmt\npage:\nclients:\npair:\n"
	for name, c := range map[string]struct {
		figure figure
		files  map[string]string
		want   []string // parts of the faults, in their order
	}{
		"a page within its size":        {size("P.md", 4), map[string]string{"P.md": "1234"}, nil},
		"a page above its size":         {size("P.md", 4), map[string]string{"P.md": "12345"}, []string{"P.md: 5 bytes, at most 4"}},
		"pages of a folder":             {pageSizes("docs", 4, "r.md"), map[string]string{"docs/a.md": "1234", "docs/b.md": "12345", "docs/r.md": "12345"}, []string{"docs/b.md: 5 bytes, at most 4"}},
		"a glossary within its rows":    {rows("P.md", "## Words", 2), map[string]string{"P.md": glossary}, nil},
		"a glossary above its rows":     {rows("P.md", "## Words", 1), map[string]string{"P.md": glossary}, []string{"P.md: 2 rows below"}},
		"a glossary that was moved":     {rows("P.md", "## Glossary", 2), map[string]string{"P.md": glossary}, []string{"no table below"}},
		"tables below smaller headings": {rows("P.md", "## Words", 3), map[string]string{"P.md": glossary + "### Even more\n\n" + glossary[strings.Index(glossary, "| word"):]}, nil},
		"a glossary without a table":    {rows("P.md", "## Words", 2), map[string]string{"P.md": "## Words\n\nNone.\n"}, []string{"no table below"}},
		"files that are there":          {comments(), map[string]string{"a/doc.go": "// Package a has b.go, and (c.go, d.lua) of go1.26.\n// See x/y.go and encoding.golang.\npackage a\n", "a/b.go": "package a", "a/c.go": "package a", "a/d.lua": "", "b/e.go": "package b\n\n// gone.go\n"}, nil},
		"files that are not there":      {comments(), map[string]string{"a/doc.go": "// Package a has b.go, and (c.go,\n// d.lua) below.\npackage a\n", "a/d.lua": "", "b/e.go": "// Package b has gone.go.\npackage b\n"}, []string{"a/doc.go: b.go does not exist", "a/doc.go: c.go does not exist", "b/e.go: gone.go does not exist"}},
		"a workflow with all targets":   {targets("run", "ci.yml"), map[string]string{"run": "make check\nmake page\nmake clients\nmake pair VLLM=0.33.0\n", "ci.yml": workflow, "Makefile": makefile}, nil},
		"a workflow that lacks targets": {targets("run", "ci.yml"), map[string]string{"run": "make check\nmake soak\nmake pair VLLM=0.32.0\n", "ci.yml": workflow, "Makefile": makefile + "soak:\n"}, []string{"runs make soak, which", "runs make pair VLLM=0.32.0, which"}},
		"targets that don't exist":      {targets("run", "ci.yml"), map[string]string{"run": "make check\n", "ci.yml": workflow, "Makefile": "page:\n"}, []string{"run: make check, which", "ci.yml: make check, which"}},

		"plain English": {phrases(isPage), map[string]string{
			"A.md": "It has been released. How many? That often helps.\n", "scripts/a.md": "of which\n", "CHANGELOG.md": "of which\n", "docs/reference.md": "so many\n",
		}, nil},
		"pages that are hard to read": {phrases(isPage), map[string]string{
			"A.md": "One, of\nwhich.\n", "docs/a.md": "Who takes it has its blocks released.\n",
		}, []string{`A.md: "of\nwhich"`, `docs/a.md: "Who takes it"`, `docs/a.md: "has its blocks released"`}},
		"a text that is no comment":      {phrases(isProduct), map[string]string{"a.go": "package a\n\nvar a = \"so many\"\n"}, nil},
		"comments that are hard to read": {phrases(isProduct), map[string]string{"a.go": "package a\n\n// One of\n// whom.\nvar a int // those of b\n"}, []string{"a.go: \"of\\nwhom\"", "a.go: \"those of\""}},

		"words that are free": {words(fleet), map[string]string{
			// A name elsewhere, a name of another kind, a part of a word, comments, folders that are no code.
			"server/a.go":                "package server\n\n// barred Start told_late\ntype Start struct{ tries int }\n\nfunc (h *Start) barred() { tries := \"told_late or not\"; _ = tries }\n",
			"upstream/fleet/a.go":        "package fleet\n\ntype Started struct{ Start int }\n\nfunc Start(start int) (bar func(start int)) { return nil }\n",
			"upstream/fleet/a_test.go":   "package fleet\n\nfunc TestStart(int) {}\n",
			"upstream/testdata/a.go":     "package testdata\n\nfunc barred() {}\n",
			"upstream/fleet/deep/a.go":   "package deep\n\ntype Start int\n",
			"node_modules/x/upstream.go": "not Go",
		}, nil},
		"words that were replaced": {words(fleet), map[string]string{
			"server/a.go":         "package server\n\ntype turn struct{ tries int }\n\nconst reason = \"told_late\"\n",
			"upstream/fleet/a.go": "package fleet\n\ntype Start struct {\n\tisBarred bool\n}\n\nfunc (s *Start) Barred() bool { return false }\n\ntype shared interface {\n\tBarredSince() int\n}\n\nconst whyBarred = 1\n",
		}, []string{
			"server/a.go:3: field tries: say retry", "server/a.go:5: text told_late: say reported_late", "upstream/fleet/a.go:3: type Start: say Incarnation",
			"upstream/fleet/a.go:4: field isBarred", "upstream/fleet/a.go:7: method Barred", "upstream/fleet/a.go:10: method BarredSince",
			"upstream/fleet/a.go:13: value whyBarred",
		}},
		"words that were replaced within functions": {words(fleet), map[string]string{
			"server/a.go":   "package server\n\ntype turn int\n\nfunc (h *turn) a() {}\n",
			"upstream/a.go": "package upstream\n\nfunc a(barred int) (isBarred bool) {\n\tbarredOne, b := 1, 2\n\tfor barredKey := range 2 {\n\t\tvar barredToo int\n\t}\n\t_ = func(barredLast int) {}\n}\n",
		}, []string{
			"server/a.go:5: local h: say t", "upstream/a.go:3: local barred", "upstream/a.go:3: local isBarred", "upstream/a.go:4: local barredOne",
			"upstream/a.go:5: local barredKey", "upstream/a.go:6: local barredToo", "upstream/a.go:8: local barredLast",
		}},
		"words that were replaced in tests, files and tags": {words(fleet), map[string]string{
			"server/a.go":              "package server\n\ntype record struct {\n\tLate int `json:\"told_late,omitempty\" xml:\"x\"`\n}\n",
			"upstream/barred_linux.go": "package upstream\n",
			"upstream/fleet/a_test.go": "package fleet\n\nfunc TestBarred_Holds() {}\n",
		}, []string{"server/a.go:4: text told_late", "upstream/barred_linux.go:1: file barred_linux", "upstream/fleet/a_test.go:3: func TestBarred_Holds"}},
	} {
		t.Run(name, func(t *testing.T) {
			faults, err := check(tree(t, c.files), []figure{c.figure})
			if err != nil {
				t.Fatal(err)
			}
			if len(faults) != len(c.want) {
				t.Fatalf("faults %q, want %q", faults, c.want)
			}
			for i, want := range c.want {
				if !strings.Contains(faults[i], want) {
					t.Errorf("fault %q, want %q", faults[i], want)
				}
			}
		})
	}
}

// What can't be read is an error and not a figure that holds.
func TestFigures_WhatCannotBeReadIsAnError(t *testing.T) {
	for name, f := range map[string]figure{
		"size": size("P.md", 1), "rows": rows("P.md", "## Words", 1), "targets": targets("run", "ci.yml"),
		"words": words(nil), "phrases": phrases(isProduct), "sizes": sizes(parts(), mostLines),
	} {
		if faults, err := check(tree(t, map[string]string{"server/broken.go": "package \""}), []figure{f}); err == nil {
			t.Errorf("%s: faults %q and no error", name, faults)
		}
	}
}

func TestSplit(t *testing.T) {
	for name, want := range map[string]string{
		"handBack": "hand back", "HandBackURL": "hand back url", "KVHost": "kv host", "x": "x", "fate_Of": "fate of", "embargo": "embargo",
	} {
		if got := strings.Join(split(name), " "); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}

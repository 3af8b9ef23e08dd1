package server_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"carryover/cmd/carryover/testrig"
	"carryover/server/proof"
	"carryover/server/record"
)

// parsed are the files of packages, without their tests and the tables themselves.
func parsed(t *testing.T, folders ...string) (all []*ast.File) {
	t.Helper()
	for _, folder := range folders {
		names, err := filepath.Glob(filepath.Join(folder, "*.go"))
		if err != nil || len(names) == 0 {
			t.Fatalf("%s: %v", folder, err)
		}
		for _, name := range names {
			if strings.HasSuffix(name, "_test.go") || filepath.Base(name) == "terms.go" {
				continue
			}
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, file)
		}
	}
	return all
}

func literal(e ast.Expr) string {
	if l, ok := e.(*ast.BasicLit); ok && l.Kind == token.STRING {
		text, _ := strconv.Unquote(l.Value)
		return text
	}
	return ""
}

// constants are the strings of constants whose names begin so.
func constants(files []*ast.File, prefixes ...string) (all []string) {
	for _, file := range files {
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok {
				return true
			}
			for i, name := range spec.Names {
				begins := slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name.Name, p) })
				if begins && i < len(spec.Values) && literal(spec.Values[i]) != "" {
					all = append(all, literal(spec.Values[i]))
				}
			}
			return true
		})
	}
	return all
}

func words(terms ...[]record.Term) (all []string) {
	for _, term := range slices.Concat(terms...) {
		all = append(all, term.Name)
	}
	return all
}

func wantTerms(t *testing.T, what string, written, declared []string) {
	t.Helper()
	for _, name := range declared {
		if !slices.Contains(written, name) {
			t.Errorf("%s: %s is in the code and not in its table", what, name)
		}
	}
	if twice := slices.Sorted(slices.Values(written)); len(slices.Compact(slices.Clone(twice))) != len(twice) {
		t.Errorf("%s: a word is there twice: %q", what, twice)
	}
}

// The tables are what docs/reference.md is made of: nothing that the program says may be missing there.
func TestTerms_EveryReasonIsThere(t *testing.T) {
	miss := words(slices.Concat(record.MissReasons(), record.EmptyHits()))
	wantTerms(t, "reasons of a miss", miss, constants(parsed(t, "record"), "Reason"))
	wantTerms(t, "reasons of a miss", miss, constants(parsed(t, "proof"), "Miss"))
	var lacks []string
	for _, why := range constants(parsed(t, "proof", "reuse", "turn"), "Lacks", "lacks") {
		lacks = append(lacks, proof.Unproven(why))
	}
	wantTerms(t, "what the proof lacks", miss, lacks)
	wantTerms(t, "ineligible", words(record.IneligibleReasons()), constants(parsed(t, "../upstream", "../upstream/body"), "Why"))
	alone := constants(parsed(t, "pick", "record", "../upstream/connector/lmcache"), "why", "Why")
	wantTerms(t, "decode alone", words(record.AloneReasons()), alone)
	var stored []string
	for _, why := range slices.Concat(constants(parsed(t, "../convcache"), "Why"), constants(parsed(t, "answer"), "Unparsable")) {
		stored = append(stored, "ineligible_"+why)
	}
	for text := range said(t) {
		if strings.HasPrefix(text, "ineligible_") && text != "ineligible_" && !strings.HasSuffix(text, "=") {
			stored = append(stored, text)
		}
	}
	wantTerms(t, "stored", words(record.StoredResults()), stored)
}

// said are the strings of the code that decides about reuse.
func said(t *testing.T) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	for _, file := range parsed(t, "record", "proof", "reuse", "turn", "pick", "pins", "answer", "../convcache", "../upstream", "../upstream/body", "../upstream/connector/lmcache") {
		ast.Inspect(file, func(n ast.Node) bool {
			if e, ok := n.(ast.Expr); ok && literal(e) != "" {
				all[literal(e)] = true
			}
			return true
		})
	}
	return all
}

// A sentence belongs to a reason that the program can give, fits a header, and says something.
func TestTerms_NoSentenceIsDead(t *testing.T) {
	in := said(t)
	for _, term := range slices.Concat(record.MissReasons(), record.EmptyHits(), record.IneligibleReasons(), record.AloneReasons(), record.StoredResults()) {
		_, lacks, _ := strings.Cut(term.Name, ";why=")
		if !in[term.Name] && !in[strings.TrimPrefix(term.Name, "ineligible_")] && !in[lacks] {
			t.Errorf("nothing says %s", term.Name)
		}
		for _, sentence := range []string{term.Means, term.Do} {
			if sentence == "" && sentence == term.Do {
				continue
			}
			if !strings.HasSuffix(sentence, ".") || strings.ToUpper(sentence[:1]) != sentence[:1] || strings.ContainsFunc(sentence, func(r rune) bool { return r < ' ' || r > '~' }) {
				t.Errorf("%s: %q is no sentence that fits a header", term.Name, sentence)
			}
		}
	}
}

// errorCode is the code that a call or a composite literal gives an error, "" if it gives none that is written out.
func errorCode(n ast.Node) string {
	switch n := n.(type) {
	case *ast.CallExpr:
		name := ""
		switch f := n.Fun.(type) {
		case *ast.Ident:
			name = f.Name
		case *ast.SelectorExpr:
			name = f.Sel.Name
		}
		at, made := map[string]int{"badrequest": 1, "refused": 1, "unavailable": 0, "crowded": 0, "failure": 2}[strings.ToLower(name)]
		if made && at < len(n.Args) {
			return literal(n.Args[at])
		}
	case *ast.KeyValueExpr:
		if key, ok := n.Key.(*ast.Ident); ok && key.Name == "Code" {
			return literal(n.Value)
		}
	case *ast.AssignStmt:
		if to, ok := n.Lhs[0].(*ast.SelectorExpr); ok && to.Sel.Name == "Code" {
			return literal(n.Rhs[0])
		}
	}
	return ""
}

func TestTerms_EveryErrorCodeIsThere(t *testing.T) {
	var written, made []string
	for _, c := range testrig.Codes() {
		written = append(written, c.Name)
	}
	for _, file := range parsed(t, ".", "apierror", "pick", "request", "reuse", "turn", "../upstream", "../upstream/body") {
		ast.Inspect(file, func(n ast.Node) bool {
			if code := errorCode(n); code != "" && !slices.Contains(made, code) {
				made = append(made, code)
			}
			return true
		})
	}
	// These are made of the role of the leg that failed (Mapper.fromLeg in package apierror).
	for _, role := range []string{"prefill", "decode"} {
		made = append(made, role+"_failed", "bad_"+role+"_answer", role+"_timeout")
	}
	made = append(made, "stream_idle_timeout")
	wantTerms(t, "error codes", written, made)
	for _, code := range written {
		if !slices.Contains(made, code) {
			t.Errorf("%s is in the table and nowhere in the code", code)
		}
	}
}

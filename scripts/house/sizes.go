package main

import (
	"bytes"
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// measure is what is bounded of a piece of code.
type measure string

const (
	packageLines measure = "package-lines" // of a folder's Go files, those of tests left out
	fileLines    measure = "file-lines"
	typeMethods  measure = "type-methods"  // declared for a type, in any file of its package: promoted ones don't count
	structFields measure = "struct-fields" // see fields
	turnUses     measure = "turn-uses"     // parameters and fields in a package that are the turn
	productLines measure = "product-lines" // of all that is product
)

// measured is a piece of code and its figure. The name is a folder, a file, or a folder and a type: server.turns.
type measured struct {
	of     measure
	name   string
	figure int
}

// bounds say how large code may be.
type bounds struct {
	most    map[measure]int
	folders map[string]int // packages that have a bound of their own
	// product reports whether the lines of a folder count for product-lines.
	product func(folder string) bool
	turns   []string // the types that are the turn, with their folders: server.turn
	turnsIn string   // the folder in which the turn may be a parameter
}

// limits are those of this repository. What is over one of them stands in the list of exceptions with its figure.
func limits() bounds {
	return bounds{
		most: map[measure]int{
			packageLines: 3000, fileLines: 350, typeMethods: 25, structFields: 12, turnUses: 0, productLines: 46_000,
		},
		folders: map[string]int{"server": 1600, "cmd/carryover": 200, "cmd/pdbench": 200},
		product: func(folder string) bool {
			top, _, _ := strings.Cut(folder, "/")
			return slices.Contains([]string{"cmd", "server", "convcache", "sse", "upstream"}, top) &&
				folder != "cmd/pdbench" && folder != "upstream/vllmsim" && !strings.HasPrefix(folder, "cmd/pdbench/") && !strings.HasPrefix(folder, "upstream/vllmsim/")
		},
		turns: []string{"server.turn", "server/turn.turn", "server/turn.Turn"}, turnsIn: "server/turn",
	}
}

// of returns the bound of a piece of code.
func (b bounds) of(m measured) int {
	if most, own := b.folders[m.name]; own && m.of == packageLines {
		return most
	}
	return b.most[m.of]
}

// sizes bounds the sizes of packages, files, types and structs. A piece that is over its limit is a fault, unless the list has it with at
// least its figure. The list only ever shrinks: hint is told of rows that could be lowered or left out.
func sizes(b bounds, list string, hint func(string)) figure {
	return func(root string) (faults []string, err error) {
		listed, err := exceptions(filepath.Join(root, list))
		if err != nil {
			return nil, err
		}
		all, err := measureTree(root, b)
		if err != nil {
			return nil, err
		}
		for _, m := range all {
			row := measured{m.of, m.name, 0}
			figure, excepted := listed[row]
			delete(listed, row)
			switch most := b.of(m); {
			case m.figure <= most && excepted:
				hint(fmt.Sprintf("%s: %s %s is within its limit of %d: leave the row out", list, m.of, m.name, most))
			case m.figure <= most:
			case !excepted:
				faults = append(faults, fmt.Sprintf("%s: %s %d, at most %d", m.name, m.of, m.figure, most))
			case m.figure > figure:
				faults = append(faults, fmt.Sprintf("%s: %s %d, at most %d, and %s has it with %d", m.name, m.of, m.figure, most, list, figure))
			case figure-m.figure > slack(m.of):
				hint(fmt.Sprintf("%s: %s %s has fallen from %d to %d: lower the row", list, m.of, m.name, figure, m.figure))
			}
		}
		for row := range listed {
			hint(fmt.Sprintf("%s: %s %s does not exist: leave the row out", list, row.of, row.name))
		}
		return faults, nil
	}
}

// slack is how far a figure may fall below its row before it is worth a hint.
func slack(of measure) int {
	switch of {
	case packageLines, productLines:
		return 100
	default:
		return 2
	}
}

// exceptions reads the list: a row is a measure, a name and a figure.
func exceptions(file string) (map[measured]int, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	listed := map[measured]int{}
	for n, line := range strings.Split(string(text), "\n") {
		var m measured
		var figure int
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if _, err := fmt.Sscanf(line, "%s %s %d", &m.of, &m.name, &figure); err != nil {
			return nil, fmt.Errorf("%s:%d: %q is not a measure, a name and a figure", file, n+1, line)
		}
		if _, twice := listed[m]; twice {
			return nil, fmt.Errorf("%s:%d: %s %s stands there twice", file, n+1, m.of, m.name)
		}
		listed[m] = figure
	}
	return listed, nil
}

// measureTree measures all Go code below root but tests, test servers and what has no code of ours, in the order of measures and names.
func measureTree(root string, b bounds) ([]measured, error) {
	figures := map[measured]int{}
	err := filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && file != root && (skipped(entry.Name()) || forTests(entry.Name())):
			return filepath.SkipDir
		case entry.IsDir() || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go"):
			return nil
		}
		name, err := filepath.Rel(root, file)
		if err != nil {
			return err
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		return measureFile(figures, filepath.ToSlash(name), text, b)
	})
	all := make([]measured, 0, len(figures))
	for m, figure := range figures {
		all = append(all, measured{m.of, m.name, figure})
	}
	slices.SortFunc(all, func(a, b measured) int { return cmp.Or(cmp.Compare(a.of, b.of), cmp.Compare(a.name, b.name)) })
	return all, err
}

// forTests reports whether a folder has what only tests import: a package named like testing's own, net/http/httptest.
func forTests(folder string) bool { return strings.HasSuffix(folder, "test") || folder == "testrig" }

// measureFile adds what a file has to the figures.
func measureFile(figures map[measured]int, file string, text []byte, b bounds) error {
	parsed, err := parser.ParseFile(token.NewFileSet(), file, text, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	folder, lines := path.Dir(file), bytes.Count(text, []byte("\n"))
	add := func(of measure, name string, n int) { figures[measured{of, name, 0}] += n }
	add(packageLines, folder, lines)
	add(fileLines, file, lines)
	if b.product(folder) {
		add(productLines, "all", lines)
	}
	uses := turnsOf(parsed, folder, b.turns)
	if folder == b.turnsIn {
		uses = func(*ast.FieldList) int { return 0 }
	}
	for _, d := range parsed.Decls {
		if f, ok := d.(*ast.FuncDecl); ok && f.Recv != nil {
			add(typeMethods, folder+"."+receiver(f), 1)
		}
	}
	ast.Inspect(parsed, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncType:
			add(turnUses, folder, uses(n.Params))
		case *ast.StructType:
			add(turnUses, folder, uses(n.Fields))
		case *ast.TypeSpec:
			if s, ok := n.Type.(*ast.StructType); ok {
				add(structFields, folder+"."+n.Name.Name, fields(n.Name.Name, s))
			}
		}
		return true
	})
	return nil
}

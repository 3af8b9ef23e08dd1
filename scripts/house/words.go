package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// kind is what an identifier is declared as.
type kind string

const (
	ofType  kind = "type"
	ofField kind = "field"  // of a struct
	ofFunc  kind = "func"   // of a package
	ofMeth  kind = "method" // of a type or an interface
	ofValue kind = "value"  // a constant or variable of a package
	ofFile  kind = "file"   // the name of a Go file
	ofLocal kind = "local"  // a receiver, parameter, result or variable of a function
	ofText  kind = "text"   // a string literal, wherever it stands, or the name of a member in a JSON tag
)

// word is a word that another one has replaced. It concerns names of files, and identifiers, those of tests and those within functions
// included: a comment may use any English word. Where kinds has ofText, it concerns string literals that are the word.
type word struct {
	old, use string   // "turn.tries" is the field, method or receiver tries of the type turn
	in       []string // folders; "server/..." is server with those below; empty is all
	kinds    []kind   // empty is all but ofText
	// whole is for words that are good English elsewhere: only an identifier that is the word is refused, and not one that has it
	// among its words, and not one within a function.
	whole bool
}

// declared is an identifier, a file or a string literal.
type declared struct {
	name, file string
	line       int
	kind       kind
	owner      string // the type of a field, method or receiver
}

// words refuses identifiers that have a word that was replaced.
func words(table []word) figure {
	return func(root string) (faults []string, err error) {
		err = filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case entry.IsDir() && skipped(entry.Name()) && file != root:
				return filepath.SkipDir
			case entry.IsDir() || !strings.HasSuffix(file, ".go"):
				return nil
			}
			name, err := filepath.Rel(root, file)
			if err != nil {
				return err
			}
			all, err := declarations(file, filepath.ToSlash(name))
			all = append(all, declared{strings.TrimSuffix(filepath.Base(file), ".go"), filepath.ToSlash(name), 1, ofFile, ""})
			for _, d := range all {
				if w := refused(table, d); w != nil {
					faults = append(faults, fmt.Sprintf("%s:%d: %s %s: say %s", d.file, d.line, d.kind, d.name, w.use))
				}
			}
			return err
		})
		return faults, err
	}
}

// refused returns the word of the table that an identifier must not have, nil if it has none.
func refused(table []word, d declared) *word {
	for i := range table {
		if w := &table[i]; w.concerns(d) && w.matches(d) {
			return w
		}
	}
	return nil
}

// concerns reports whether such identifiers are looked at.
func (w *word) concerns(d declared) bool {
	if len(w.kinds) == 0 && (d.kind == ofText || d.kind == ofLocal && w.whole) || len(w.kinds) > 0 && !slices.Contains(w.kinds, d.kind) {
		return false
	}
	folder := path.Dir(d.file)
	return len(w.in) == 0 || slices.ContainsFunc(w.in, func(in string) bool {
		below, all := strings.CutSuffix(in, "/...")
		return folder == below || all && strings.HasPrefix(folder, below+"/")
	})
}

// matches reports whether an identifier is the word, or has it among its words.
func (w *word) matches(d declared) bool {
	owner, name, owned := strings.Cut(w.old, ".")
	switch {
	case owned:
		return d.owner == owner && strings.EqualFold(d.name, name)
	case d.kind == ofText:
		return d.name == w.old
	case w.whole:
		return strings.EqualFold(d.name, w.old)
	}
	return has(split(d.name), split(w.old))
}

// has reports whether the words of an identifier contain some in that order, one behind the other.
func has(parts, wanted []string) bool {
	for i := 0; i+len(wanted) <= len(parts); i++ {
		if slices.Equal(parts[i:i+len(wanted)], wanted) {
			return true
		}
	}
	return false
}

// split returns the words of an identifier in lower case: HandBackURL is hand, back and url.
func split(name string) (parts []string) {
	runes := []rune(name)
	begin := 0
	cut := func(end int) {
		if part := strings.ToLower(strings.Trim(string(runes[begin:end]), "_")); part != "" {
			parts = append(parts, part)
		}
		begin = end
	}
	for i := 1; i < len(runes); i++ {
		upper, before := unicode.IsUpper(runes[i]), unicode.IsUpper(runes[i-1])
		if runes[i] == '_' || upper && !before || upper && i+1 < len(runes) && unicode.IsLower(runes[i+1]) {
			cut(i)
		}
	}
	cut(len(runes))
	return parts
}

// declarations returns what a file declares, and its string literals, in its order.
func declarations(file, name string) (all []declared, err error) {
	files := token.NewFileSet()
	parsed, err := parser.ParseFile(files, file, nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	add := func(k kind, owner string, names ...*ast.Ident) {
		for _, n := range names {
			all = append(all, declared{n.Name, name, files.Position(n.Pos()).Line, k, owner})
		}
	}
	for _, d := range parsed.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv != nil {
				add(ofMeth, receiver(d), d.Name)
				add(ofLocal, receiver(d), d.Recv.List[0].Names...)
			} else {
				add(ofFunc, "", d.Name)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					add(ofType, "", spec.Name)
					members(spec, add)
				case *ast.ValueSpec:
					add(ofValue, "", spec.Names...)
				}
			}
		}
	}
	local := func(exprs ...ast.Expr) {
		for _, e := range exprs {
			if n, ok := e.(*ast.Ident); ok {
				add(ofLocal, "", n)
			}
		}
	}
	ast.Inspect(parsed, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncType:
			for _, f := range slices.Concat(n.Params.List, fieldsOf(n.Results)) {
				add(ofLocal, "", f.Names...)
			}
		case *ast.AssignStmt:
			if n.Tok == token.DEFINE {
				local(n.Lhs...)
			}
		case *ast.RangeStmt:
			if n.Tok == token.DEFINE {
				local(n.Key, n.Value)
			}
		case *ast.DeclStmt:
			for _, spec := range n.Decl.(*ast.GenDecl).Specs {
				if v, ok := spec.(*ast.ValueSpec); ok {
					add(ofLocal, "", v.Names...)
				}
			}
		case *ast.BasicLit:
			if text, err := strconv.Unquote(n.Value); err == nil && n.Kind == token.STRING {
				if member, _, _ := strings.Cut(reflect.StructTag(text).Get("json"), ","); member != "" {
					text = member
				}
				all = append(all, declared{text, name, files.Position(n.Pos()).Line, ofText, ""})
			}
		}
		return true
	})
	slices.SortStableFunc(all, func(a, b declared) int { return cmp.Compare(a.line, b.line) })
	return all, nil
}

func fieldsOf(list *ast.FieldList) []*ast.Field {
	if list == nil {
		return nil
	}
	return list.List
}

// receiver returns the name of a method's type.
func receiver(d *ast.FuncDecl) (name string) {
	ast.Inspect(d.Recv.List[0].Type, func(n ast.Node) bool {
		if ident, ok := n.(*ast.Ident); ok && name == "" {
			name = ident.Name
		}
		return name == ""
	})
	return name
}

// members adds the fields and methods of a type, those of types within included.
func members(of *ast.TypeSpec, add func(kind, string, ...*ast.Ident)) {
	ast.Inspect(of.Type, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncType: // its parameters are names of a function's own
			return false
		case *ast.StructType:
			for _, f := range n.Fields.List {
				add(ofField, of.Name.Name, f.Names...)
			}
		case *ast.InterfaceType:
			for _, f := range n.Methods.List {
				add(ofMeth, of.Name.Name, f.Names...)
			}
		}
		return true
	})
}

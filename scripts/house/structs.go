package main

import (
	"go/ast"
	"path"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// fields counts those of a struct: an embedded type is one, a struct within adds its own. Three kinds may have any number, and each is told by
// its fields, so that a state with a lock or private fields is none of them whatever its name. A wire format has three fields in four on the
// wire, and only the others count; in configuration and among counters no field counts.
func fields(name string, s *ast.StructType) int {
	all, written := count(s, func(*ast.Field) bool { return true }), count(s, onTheWire)
	switch {
	case configured(name) && count(s, isSetting) == all, count(s, isCounter) == all:
		return 0
	case written*4 >= all*3:
		return all - written
	}
	return all
}

func count(s *ast.StructType, is func(*ast.Field) bool) (n int) {
	for _, f := range s.Fields.List {
		if is(f) {
			n += max(1, len(f.Names))
		}
		if within, ok := f.Type.(*ast.StructType); ok {
			n += count(within, is)
		}
	}
	return n
}

// onTheWire reports whether a field is exchanged with others: exported, with its name there in a tag.
func onTheWire(f *ast.Field) bool {
	if f.Tag == nil || !exported(f) {
		return false
	}
	text, err := strconv.Unquote(f.Tag.Value)
	named := func(key string) bool {
		name, _, _ := strings.Cut(reflect.StructTag(text).Get(key), ",")
		return name != "" && name != "-"
	}
	return err == nil && (named("json") || named("yaml"))
}

// configured reports whether a type says that it is configuration.
func configured(name string) bool {
	return slices.ContainsFunc([]string{"Config", "Options", "Settings"}, func(end string) bool { return strings.HasSuffix(name, end) })
}

// isSetting reports whether a field can be one of configuration: a caller sets it, and it has no state to guard or to signal.
func isSetting(f *ast.Field) bool {
	stateful := false
	ast.Inspect(f.Type, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncType:
			return false
		case *ast.ChanType:
			stateful = true
		case *ast.SelectorExpr:
			if of, ok := n.X.(*ast.Ident); ok && (of.Name == "sync" || of.Name == "atomic") {
				stateful = true
			}
		}
		return !stateful
	})
	return exported(f) && !stateful
}

// isCounter reports whether a field is a number that is counted atomically, or an instrument of OpenTelemetry.
func isCounter(f *ast.Field) bool {
	of, ok := f.Type.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	from, ok := of.X.(*ast.Ident)
	return ok && (from.Name == "metric" || from.Name == "atomic" && (strings.HasPrefix(of.Sel.Name, "Int") || strings.HasPrefix(of.Sel.Name, "Uint")))
}

// exported reports whether code of other packages may set a field. An embedded type may be.
func exported(f *ast.Field) bool {
	return !slices.ContainsFunc(f.Names, func(n *ast.Ident) bool { return !n.IsExported() })
}

// turnsOf returns a function that counts the parameters or fields of a list that are the turn, as a value or by its address, in a file.
func turnsOf(file *ast.File, folder string, turns []string) func(*ast.FieldList) int {
	names := map[string]bool{} // as the file spells them
	for _, turn := range turns {
		home, name, _ := strings.Cut(turn, ".")
		if home == folder {
			names[name] = true
		}
		for _, imported := range file.Imports {
			if at, err := strconv.Unquote(imported.Path.Value); err == nil && strings.HasSuffix(at, "/"+home) {
				local := path.Base(home)
				if imported.Name != nil {
					local = imported.Name.Name
				}
				names[local+"."+name] = true
			}
		}
	}
	return func(list *ast.FieldList) (n int) {
		for _, f := range list.List {
			of := f.Type
			if star, ok := of.(*ast.StarExpr); ok {
				of = star.X
			}
			name := ""
			switch of := of.(type) {
			case *ast.Ident:
				name = of.Name
			case *ast.SelectorExpr:
				if from, ok := of.X.(*ast.Ident); ok {
					name = from.Name + "." + of.Sel.Name
				}
			}
			if names[name] {
				n += max(1, len(f.Names))
			}
		}
		return n
	}
}

package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// configFile reads YAML nodes along the settings table. So it finds all faults with their lines, and parses values like flags and variables.
type configFile struct {
	*Loader
	path string
}

func (l *Loader) applyFile(path, origin string) {
	refuse := func(want string) {
		l.faults = append(l.faults, Fault{Key: FileFlag, Value: Quoted(path), Origin: origin, Want: want})
	}
	data, err := os.ReadFile(path)
	if err != nil {
		refuse("a readable file: " + err.Error())
		return
	}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var doc, second yaml.Node
	if err := decoder.Decode(&doc); errors.Is(err, io.EOF) {
		return
	} else if err != nil {
		refuse("YAML: " + strings.TrimPrefix(err.Error(), "yaml: "))
		return
	}
	if err := decoder.Decode(&second); !errors.Is(err, io.EOF) {
		refuse("one YAML document")
		return
	}
	f := configFile{Loader: l, path: path}
	f.mapping(doc.Content[0], "", l.rows)
}

// mapping reads a section. prefix is empty for the whole document; otherwise it ends in a dot.
func (f configFile) mapping(n *yaml.Node, prefix string, rows []Setting) {
	pairs, ok := f.pairs(n, prefix)
	if !ok {
		f.refuse(cmp.Or(strings.TrimSuffix(prefix, "."), FileFlag), n.Line, "a mapping with keys "+strings.Join(memberNames(prefix, rows), ", "))
		return
	}
	for _, p := range pairs {
		key := prefix + p.name
		if i := slices.IndexFunc(rows, func(s Setting) bool { return s.Key == key }); i >= 0 {
			f.value(rows[i], p.value)
			continue
		}
		section := slices.DeleteFunc(slices.Clone(rows), func(s Setting) bool { return !strings.HasPrefix(s.Key, key+".") })
		if len(section) == 0 {
			names := memberNames(prefix, rows)
			f.refuse(key, p.line, "a known key: "+strings.Join(names, ", ")+f.meantKey(p.name, names))
			continue
		}
		f.mapping(p.value, key+".", section)
	}
}

func memberNames(prefix string, rows []Setting) []string {
	var names []string
	for _, s := range rows {
		name, _, _ := strings.Cut(strings.TrimPrefix(s.Key, prefix), ".")
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

func (f configFile) value(s Setting, n *yaml.Node) {
	switch v := s.To.(type) {
	case *[]InstanceConfig:
		if items, ok := f.items(s, n); ok {
			*v = make([]InstanceConfig, len(items))
			for i, item := range items {
				f.mapping(item, instanceKey(s.Key, i), InstanceSettings(s.Key, i, &(*v)[i]))
			}
		}
	case *[]string:
		if items, ok := f.items(s, n); ok {
			*v = nil
			for i, item := range items {
				var text string
				f.scalar(Setting{Key: fmt.Sprintf("%s[%d]", s.Key, i), To: &text}, item)
				*v = append(*v, text)
			}
		}
	default:
		f.scalar(s, n)
	}
}

func (f configFile) scalar(s Setting, n *yaml.Node) {
	n = resolve(n)
	if n.Kind != yaml.ScalarNode || n.Tag == "!!null" {
		f.refuse(s.Key, n.Line, "a single value")
		return
	}
	f.set(s, n.Value, f.at(n.Line))
}

func (f configFile) items(s Setting, n *yaml.Node) ([]*yaml.Node, bool) {
	n = resolve(n)
	if n.Kind != yaml.SequenceNode {
		f.refuse(s.Key, n.Line, "a list")
		return nil, false
	}
	f.own(s.Key, f.at(n.Line))
	return n.Content, true
}

type pair struct {
	name  string
	line  int
	value *yaml.Node
}

// pairs returns false if n is no mapping. It takes a section whose members are all commented out as empty. It refuses a repeated key: YAML
// 1.2 section 3.2.1.1 forbids it, and one value would be lost.
func (f configFile) pairs(n *yaml.Node, prefix string) ([]pair, bool) {
	n = resolve(n)
	if n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
		return nil, true
	}
	if n.Kind != yaml.MappingNode {
		return nil, false
	}
	var list []pair
	for i := 0; i+1 < len(n.Content); i += 2 {
		p := pair{name: n.Content[i].Value, line: n.Content[i].Line, value: n.Content[i+1]}
		if slices.ContainsFunc(list, func(other pair) bool { return other.name == p.name }) {
			f.refuse(prefix+p.name, p.line, "each key once")
			continue
		}
		list = append(list, p)
	}
	return list, true
}

// resolve follows an alias. YAML has no alias to an alias, and the walk is at most as deep as the settings table, so cycles are harmless.
func resolve(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

func (f configFile) at(line int) string { return fmt.Sprintf("%s:%d", f.path, line) }

func (f configFile) refuse(key string, line int, want string) {
	f.faults = append(f.faults, Fault{Key: key, Origin: f.at(line), Want: want})
}

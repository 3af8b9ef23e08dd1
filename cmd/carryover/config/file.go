package config

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"carryover/upstream"
)

// configFile reads YAML nodes along the settings table. So it finds all faults with their lines, and parses values like flags and variables.
type configFile struct {
	*Loader
	path string
}

func (l *Loader) applyFile(path, origin string) {
	data, err := os.ReadFile(path)
	want := ""
	if err != nil {
		want = "a readable file: " + err.Error()
	} else {
		want = l.read(path, data)
	}
	if want != "" {
		l.faults = append(l.faults, Fault{Key: FileFlag, Value: Quoted(path), Origin: origin, Want: want})
	}
}

// read reads a file along the rows. It returns what is wanted of a file that is not one YAML document. JSON is read as YAML.
func (l *Loader) read(path string, data []byte) (want string) {
	if json.Valid(data) {
		// YAML 1.1 has all escapes of JSON but this one.
		data = []byte(strings.NewReplacer(`\\`, `\\`, `\/`, `/`).Replace(string(data)))
	}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var doc, second yaml.Node
	if err := decoder.Decode(&doc); errors.Is(err, io.EOF) {
		return ""
	} else if err != nil {
		return "YAML: " + strings.TrimPrefix(err.Error(), "yaml: ")
	}
	if err := decoder.Decode(&second); !errors.Is(err, io.EOF) {
		return "one YAML document"
	}
	f := configFile{Loader: l, path: path}
	f.mapping(doc.Content[0], "", l.rows)
	return ""
}

// maxInstances bounds a list. The fleet is built for a thousand instances.
const maxInstances = 4096

// ReadInstances reads a file that has no more than the lists prefill and decode, as in a configuration; c has the values that instances inherit. It
// refuses a file without either, which may be half-written. The error names all faults, but at most ten.
func (c *Config) ReadInstances(path string, data []byte) ([]upstream.Instance, error) {
	l := Loader{validation: validation{origins: map[string]string{}}, cfg: Config{KV: c.KV, Store: c.Store, Discovery: c.Discovery}}
	for _, role := range upstream.Roles() {
		l.rows = append(l.rows, Setting{Key: role.String(), To: l.cfg.Instances(role.String())})
	}
	want := l.read(path, data)
	if want == "" && len(l.faults) == 0 && !l.given(RolePrefill) && !l.given(RoleDecode) {
		want = "prefill and decode, each a list of instances; the file has neither"
	}
	if want != "" {
		return nil, fmt.Errorf("%s: want %s", path, want)
	}
	completeInstances(&l.validation, &l.cfg)
	validateRole(&l.validation, &l.cfg, RolePrefill)
	validateRole(&l.validation, &l.cfg, RoleDecode)
	validatePublishers(&l.validation, &l.cfg)
	all := l.cfg.Listed()
	if len(all) > maxInstances {
		l.fault(path, fmt.Sprint(len(all)), fmt.Sprintf("at most %d instances", maxInstances))
	}
	if more := len(l.faults) - 10; more > 0 {
		l.faults = append(l.faults[:10], fmt.Errorf("and %d more", more))
	}
	if len(l.faults) > 0 {
		return nil, errors.Join(l.faults...)
	}
	return all, nil
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
			if len(items) > maxInstances {
				f.refuse(s.Key, n.Line, fmt.Sprintf("at most %d instances", maxInstances))
				return
			}
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

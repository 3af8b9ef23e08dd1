package lmcache

import (
	"bytes"
	"slices"

	"carryover/sse/rawjson"
)

type object struct{ text []byte }

func (o *object) add(name string, value []byte) {
	if value == nil {
		value = []byte("null")
	}
	separator := byte(',')
	if len(o.text) == 0 {
		separator = '{'
	}
	o.text = append(append(append(append(o.text, separator), rawjson.Quote(name)...), ':'), value...)
}

func (o *object) end() []byte {
	if len(o.text) == 0 {
		return []byte("{}")
	}
	return append(o.text, '}')
}

func list(elements ...[]byte) []byte {
	return slices.Concat([]byte{'['}, bytes.Join(elements, []byte{','}), []byte{']'})
}

func joined(a, b []byte) []byte {
	if !isList(a) && !isList(b) {
		return nil
	}
	return list(slices.Concat(slices.Collect(rawjson.Elements(a)), slices.Collect(rawjson.Elements(b)))...)
}

func isList(raw []byte) bool { return rawjson.Kind(raw) == '[' }
func isText(raw []byte) bool { return rawjson.Kind(raw) == '"' }

// oneLine replaces line ends in JSON with spaces, in place. JSON strings contain no raw line ends.
func oneLine(text []byte) []byte {
	for i, c := range text {
		if c == '\n' || c == '\r' {
			text[i] = ' '
		}
	}
	return text
}

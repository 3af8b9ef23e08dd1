package sse

import (
	"bytes"
	"encoding/json"
)

// Span is a range of bytes, From inclusive, To exclusive.
type Span struct{ From, To int }

// Cut removes a top-level member, with one comma next to it, from a JSON object and leaves every other byte as it is.
// All occurrences of the member go, under any spelling of its name; value is the last one, a slice of object. For
// anything but one valid JSON object, and for an object without the member, found is false and rest is object itself.
func Cut(object []byte, member string) (rest, value []byte, found bool) {
	value, cuts := findMember(object, member, nil)
	if len(cuts) == 0 {
		return object, nil, false
	}
	rest = make([]byte, 0, len(object))
	kept := 0
	for _, c := range cuts {
		rest = append(rest, object[kept:c.From]...)
		kept = c.To
	}
	return append(rest, object[kept:]...), value, true
}

// findMember appends to cuts the ranges that remove the member from object, in ascending order, and returns its last
// value. A range takes the comma before the member, or the one behind it when no member that stays stands before it.
func findMember(object []byte, member string, cuts []Span) (value []byte, _ []Span) {
	m := newMembers(object)
	found := cuts
	stays := false
	for m.next() {
		if !m.named(member) {
			stays = true
			continue
		}
		value = object[m.value:m.to]
		cut := Span{m.from, m.to}
		if stays {
			cut.From = m.comma
		} else if i := skipSpace(object, m.to); peek(object, i) == ',' {
			cut.To = i + 1
		}
		found = append(found, cut)
	}
	if !m.complete {
		return nil, cuts
	}
	return value, found
}

// hasSubstance reports whether a valid object, without the member that is cut from it, has at least one of the named members
// with a value that is not null, [] or {}.
func hasSubstance(object []byte, names []string, cut string) bool {
	m := newMembers(object)
	for m.next() {
		for _, name := range names {
			if name != cut && m.named(name) && !emptyValue(object[m.value:m.to]) {
				return true
			}
		}
	}
	return false
}

// emptyValue reports whether a valid JSON value is null, [] or {}.
func emptyValue(value []byte) bool {
	switch value[0] {
	case 'n':
		return true
	case '[', '{':
		return skipSpace(value, 1) == len(value)-1
	}
	return false
}

// members walks over the members of a JSON object, one for each call of next that returns true.
type members struct {
	b        []byte
	depth    int // of the values: the arrays and objects around them
	comma    int // before the current member, meaningless at the first one
	from     int // opening quote of the name
	nameEnd  int // behind the closing quote
	value    int // first byte of the value
	to       int // behind the last byte of the value
	end      int // behind the object, 0 before all of it is seen to be valid
	complete bool
}

// newMembers begins a walk. What it yields means nothing before complete is true: all of the object is valid, and nothing
// follows it.
func newMembers(object []byte) members {
	return members{b: object, depth: 1, to: skipSpace(object, 0)}
}

func (m *members) next() bool {
	if !m.nextName() {
		return false
	}
	m.to = valueEnd(m.b, m.value, m.depth)
	return m.to > 0
}

// nextName goes as far as the beginning of a value, for a caller who finds the end of that value on a walk of its own and
// sets to, 0 if the value is not valid.
func (m *members) nextName() bool {
	i := m.to
	if m.nameEnd == 0 {
		if peek(m.b, i) != '{' {
			return false
		}
		i = skipSpace(m.b, i+1)
	} else {
		i = skipSpace(m.b, i)
	}
	if peek(m.b, i) == '}' {
		m.end = i + 1
		m.complete = skipSpace(m.b, m.end) == len(m.b)
		return false
	}
	if m.nameEnd != 0 {
		if peek(m.b, i) != ',' {
			return false
		}
		m.comma = i
		i = skipSpace(m.b, i+1)
	}
	m.from = i
	m.nameEnd, m.value = nameEnd(m.b, i)
	return m.value < len(m.b)
}

// named reports whether the current member has this name, escapes decoded: clients decode them too, so that a member
// spelled "kv_tran\u0073fer_params" is the same member to them.
func (m *members) named(name string) bool {
	quoted := m.b[m.from:m.nameEnd]
	if bytes.IndexByte(quoted, '\\') < 0 {
		return string(quoted[1:len(quoted)-1]) == name
	}
	var decoded string
	return json.Unmarshal(quoted, &decoded) == nil && decoded == name
}

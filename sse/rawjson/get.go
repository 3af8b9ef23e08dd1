package rawjson

import (
	"bytes"
	"errors"
	"iter"
)

// Kind returns the first byte of a value, which tells its kind; 0 if it is absent.
func Kind(raw []byte) byte {
	if len(raw) == 0 {
		return 0
	}
	return raw[0]
}

// Members yields the members of an object up to its first fault. Any other value has none. Depth does not matter, see Scanner.Pass.
func Members(object []byte) iter.Seq2[Member, []byte] {
	return func(yield func(m Member, value []byte) bool) {
		s := Scanner{Data: object}
		if s.Space(); s.Peek() != '{' {
			return
		}
		_ = s.Members(func(m Member) error {
			if err := s.Pass(); err != nil {
				return err
			}
			if !yield(m, object[m.Value:s.Pos]) {
				return errEnough
			}
			return nil
		})
	}
}

var errEnough = errors.New("enough")

// Get returns the value at a path of names, a part of raw, or nil. Of equal names the last counts, as in Python and encoding/json.
func Get(raw []byte, path ...string) []byte {
	for _, name := range path {
		object := raw
		raw = nil
		for m, value := range Members(object) {
			if m.Named(name) {
				raw = value
			}
		}
	}
	return raw
}

// GetText returns Text of the value at a path, "" if that is no string.
func GetText(raw []byte, path ...string) string {
	text, _ := Text(Get(raw, path...))
	return text
}

// GetInt returns Integer of the value at a path.
func GetInt(raw []byte, path ...string) (n int, ok bool) { return Integer(Get(raw, path...)) }

// Elements yields the elements of an array that a Scanner has read. Any other value has none.
func Elements(array []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		if Kind(array) != '[' {
			return
		}
		s := Scanner{Data: array}
		for more, _ := s.Open('['); more; more, _ = s.Separator(']') {
			from := s.Pos
			if s.Pass() != nil || !yield(array[from:s.Pos]) {
				return
			}
		}
	}
}

// First returns the first element of an array that a Scanner has read, nil if there is none, and whether more follow.
func First(array []byte) (first []byte, more bool) {
	for element := range Elements(array) {
		if first != nil {
			return first, true
		}
		first = element
	}
	return first, false
}

// EachKey calls visit for every key at any depth of a value that a Scanner has read, until visit returns false. visit gets the unescaped key and
// the text from its value on. EachKey leaves out keys without a UTF-8 form.
func EachKey(value []byte, visit func(name, rest []byte) bool) {
	s := Scanner{Data: value}
	for {
		quote := bytes.IndexByte(value[s.Pos:], '"')
		if quote < 0 {
			return
		}
		s.Pos += quote
		start := s.Pos + 1
		if s.SkipString() != nil {
			return
		}
		raw := value[start : s.Pos-1]
		if s.Space(); s.Peek() != ':' {
			continue
		}
		s.Pos++
		s.Space()
		name, ok := Unescape(raw)
		if ok && !visit(name, value[s.Pos:]) {
			return
		}
	}
}

// MayHave reports whether data has a member called name whose value begins with these characters, white space aside. It compares bytes: text
// can look like a member, and a name with escapes is not found.
func MayHave(data []byte, name, begin string) bool {
	for {
		at := bytes.Index(data, []byte(name))
		if at < 0 {
			return false
		}
		data = data[at+len(name):]
		if value, ok := after(data, `":`); ok && Begins(value, begin) {
			return true
		}
	}
}

// Begins reports whether data begins with these characters, white space before each aside.
func Begins(data []byte, begin string) bool {
	_, ok := after(data, begin)
	return ok
}

func after(data []byte, begin string) (rest []byte, ok bool) {
	s := Scanner{Data: data}
	for i := range len(begin) {
		if s.Space(); s.Peek() != begin[i] {
			return nil, false
		}
		s.Pos++
	}
	return data[s.Pos:], true
}

package rawjson

import (
	"errors"
	"iter"
)

// Kind returns the first byte of a value, which tells what it is; 0 if it is absent.
func Kind(raw []byte) byte {
	if len(raw) == 0 {
		return 0
	}
	return raw[0]
}

// Members yields the members of an object up to its first fault, if it has one: whoever must know of it asks Valid. Any other value has
// none. The depth does not matter, see Scanner.Pass.
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

// errEnough ends a walk whose caller wants no more.
var errEnough = errors.New("enough")

// Get returns the value to which a path of names leads, a part of raw; nil if there is none. Of members with equal names the last counts, as
// in Python and encoding/json.
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

// GetText returns what Text makes of the value that Get finds, "" if that is no string.
func GetText(raw []byte, path ...string) string {
	text, _ := Text(Get(raw, path...))
	return text
}

// GetInt returns what Integer makes of the value that Get finds.
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

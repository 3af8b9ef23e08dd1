package rawjson

import "iter"

// Kind returns the first byte of a value, which tells what it is; 0 if it is absent.
func Kind(raw []byte) byte {
	if len(raw) == 0 {
		return 0
	}
	return raw[0]
}

// Get returns the value to which a path of names leads, a part of raw; nil if there is none before the first fault of raw, if it has one. Of
// members with equal names the last counts, as in Python and encoding/json. The depth does not matter, see Scanner.Pass.
func Get(raw []byte, path ...string) []byte {
	for _, name := range path {
		s := Scanner{Data: raw}
		raw = nil
		if s.Space(); s.Peek() != '{' {
			return nil
		}
		_ = s.Members(func(m Member) error { // whoever must know of a fault asks Valid
			err := s.Pass()
			if err == nil && m.Named(name) {
				raw = s.Data[m.Value:s.Pos]
			}
			return err
		})
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

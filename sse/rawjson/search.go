package rawjson

import "bytes"

// EachKey calls visit for every key of every object inside of value, at any depth, until visit returns false. visit gets the unescaped
// key and the text that begins at its value. A Scanner must have read value before; a string is a key if a colon follows it. EachKey
// leaves out keys without a UTF-8 form.
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

// MayHave reports whether data has a member called name whose value begins with these characters, ignoring white space between
// them. It only compares bytes: a text can look like a member, and a name with escapes is not found.
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

// Begins reports whether data begins with these characters, ignoring white space before each of them.
func Begins(data []byte, begin string) bool {
	_, ok := after(data, begin)
	return ok
}

// after returns the rest of data behind these characters, ignoring white space before each of them.
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

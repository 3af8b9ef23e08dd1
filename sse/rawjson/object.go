package rawjson

import (
	"bytes"
	"iter"
	"unicode/utf8"
)

// Bounds of Objects, far above what any client or engine sends.
const (
	maxMembers = 256
	maxKey     = 256
)

// Member is the position of a member's name and value in Scanner.Data.
type Member struct {
	Comma int    // before the member; meaningless for the first one
	Start int    // opening quote of the name
	Value int    // first byte of the value
	Key   []byte // between the quotes of the name, escapes as they are
}

// Named compares the unescaped name. Clients unescape, too: to them "kv_tran\u0073fer_params" is the same member.
func (m Member) Named(name string) bool {
	if bytes.IndexByte(m.Key, '\\') < 0 {
		return string(m.Key) == name
	}
	decoded, ok := Unescape(m.Key)
	return ok && string(decoded) == name
}

func tooManyMembers(at int) *Error {
	return &Error{Code: CodeTooComplex, What: "more than 256 members", At: at}
}

// Members reads an object. At each value, also of repeated names, it calls read, which must read the value; its error ends the walk. Until
// Members has returned nil, the object may be invalid.
func (s *Scanner) Members(read func(m Member) error) error {
	var m Member
	more, err := s.Open('{')
	for more && err == nil {
		m.Start = s.Pos
		if m.Key, err = s.key(); err != nil {
			return err
		}
		m.Value = s.Pos
		if err = read(m); err != nil {
			return err
		}
		s.Space()
		m.Comma = s.Pos
		more, err = s.Separator('}')
	}
	return err
}

type objectMember struct {
	name  []byte // unescaped
	start int    // opening quote of the name
	value int    // first byte of the value
	end   int    // behind the last byte of the value
	gone  bool   // removed: invisible to readers and absent from every rewrite
}

// Object is a JSON object's text with the spans of its members. It aliases the text, which must not change.
type Object struct {
	raw     []byte
	open    int // behind the opening brace
	members []objectMember
}

// ParseObject reads exactly one JSON object: at most 256 members, with names of at most 256 bytes. The error is an *Error.
//
// It refuses what two parsers could understand differently, because a client could smuggle that past the proxy. encoding/json replaces invalid
// UTF-8 and takes the last of two equal keys (gjson takes the first), and Python's json.loads accepts NaN and other encodings. Keys are
// compared after unescaping.
func ParseObject(raw []byte) (Object, error) {
	return ParseObjectFunc(raw, func(s *Scanner, _ []byte) error { return s.Skip() })
}

// ParseObjectFunc is ParseObject with a reader for values. It gets the unescaped name, and its error is returned unchanged.
func ParseObjectFunc(raw []byte, read func(s *Scanner, name []byte) error) (Object, error) {
	if !utf8.Valid(raw) {
		return Object{}, &Error{Code: CodeInvalidUTF8, What: "invalid UTF-8"}
	}
	s := Scanner{Data: raw}
	s.Space()
	o := Object{raw: raw, open: s.Pos + 1, members: make([]objectMember, 0, 16)}
	err := s.Members(func(at Member) error {
		m, err := newMember(at)
		if err != nil {
			return err
		}
		if err = read(&s, m.name); err != nil {
			return err
		}
		m.end = s.Pos
		return o.add(m)
	})
	if err != nil {
		return Object{}, err
	}
	if !s.End() {
		return Object{}, s.Fault("data after the object")
	}
	return o, nil
}

func newMember(at Member) (objectMember, error) {
	name, ok := Unescape(at.Key)
	switch {
	case !ok:
		// Without a UTF-8 form, two different keys would compare as equal (RFC 8259, 8.2).
		return objectMember{}, &Error{Code: CodeInvalidUTF8, What: "unpaired surrogate in a key", At: at.Start}
	case len(name) > maxKey:
		return objectMember{}, &Error{Code: CodeTooComplex, What: "key longer than 256 bytes", At: at.Start}
	}
	return objectMember{name: name, start: at.Start, value: at.Value}, nil
}

// add searches linearly: 256 keys of 256 bytes that differ only at their ends cost 0.6 ms, parsing included; a map would slow every ordinary body.
func (o *Object) add(m objectMember) error {
	if len(o.members) == maxMembers {
		return tooManyMembers(m.start)
	}
	for i := range o.members {
		if bytes.Equal(o.members[i].name, m.name) {
			return &Error{Code: CodeDuplicateKey, Key: string(m.name), What: "duplicate key", At: m.start}
		}
	}
	o.members = append(o.members, m)
	return nil
}

func (o *Object) find(name string) *objectMember {
	for i := range o.members {
		if m := &o.members[i]; string(m.name) == name && !m.gone {
			return m
		}
	}
	return nil
}

// Size returns the length of the parsed text.
func (o *Object) Size() int { return len(o.raw) }

// Has reports whether the object has this member, null included.
func (o *Object) Has(name string) bool { return o.find(name) != nil }

// Get returns the raw value of a member, nil if there is none. It aliases the text.
func (o *Object) Get(name string) []byte {
	if m := o.find(name); m != nil {
		return o.raw[m.value:m.end]
	}
	return nil
}

// Remove hides a member from readers and rewrites.
func (o *Object) Remove(name string) {
	if m := o.find(name); m != nil {
		m.gone = true
	}
}

// Members yields the unescaped names and raw values in order. Values, and names without escapes, alias the text.
func (o *Object) Members() iter.Seq2[[]byte, []byte] {
	return func(yield func(name, value []byte) bool) {
		for i := range o.members {
			if m := &o.members[i]; !m.gone && !yield(m.name, o.raw[m.value:m.end]) {
				return
			}
		}
	}
}

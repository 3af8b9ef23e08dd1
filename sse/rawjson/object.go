package rawjson

import (
	"bytes"
	"iter"
	"unicode/utf8"
)

// Bounds of Objects. They stop texts with masses of members or huge names, and are far above what any client or engine sends.
const (
	maxMembers = 256
	maxKey     = 256
)

// Member is the position of an object's member in Scanner.Data: its name, and the beginning of its value.
type Member struct {
	Comma int    // the comma before it; meaningless for the first member
	Start int    // opening quote of the name
	Value int    // first byte of the value
	Key   []byte // the text between the quotes of the name, escapes as they are
}

// Named reports whether the member has this name once its escapes are decoded. Clients decode them too: "kv_tran\u0073fer_params"
// is the same member to them.
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

// Members reads an object. At each value it calls read, which must read the value and may return an error that ends the walk.
// It passes on members with equal names, each in its place. Until Members has returned nil, the object may turn out to be invalid.
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

// objectMember is one top-level member of an object, as offsets into the object's text.
type objectMember struct {
	name  []byte // unescaped
	start int    // opening quote of the name
	value int    // first byte of the value
	end   int    // one past the last byte of the value
	gone  bool   // removed: invisible to readers and absent from every rewrite
}

// Object is the text of a JSON object with the spans of its members. It aliases the text, which must not change any more.
type Object struct {
	raw     []byte
	open    int // one past the opening brace
	members []objectMember
}

// ParseObject reads raw as exactly one JSON object and records its members, 256 at most with names of at most 256 bytes.
//
// It refuses what two parsers could understand differently, because that is how a client could smuggle something past the proxy.
// encoding/json accepts more: it replaces invalid UTF-8 and takes the last of two equal keys (gjson takes the first), and Python's
// json.loads accepts NaN and other encodings. Keys are compared after unescaping. The error is an *Error.
func ParseObject(raw []byte) (Object, error) {
	return ParseObjectFunc(raw, func(s *Scanner, _ []byte) error { return s.Skip() })
}

// ParseObjectFunc is ParseObject, except that the function read reads each value. It gets the member's unescaped name, and
// ParseObjectFunc returns its error unchanged.
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
		// Such a key has no UTF-8 form, so two different ones would compare as equal (RFC 8259, 8.2).
		return objectMember{}, &Error{Code: CodeInvalidUTF8, What: "unpaired surrogate in a key", At: at.Start}
	case len(name) > maxKey:
		return objectMember{}, &Error{Code: CodeTooComplex, What: "key longer than 256 bytes", At: at.Start}
	}
	return objectMember{name: name, start: at.Start, value: at.Value}, nil
}

// add appends m unless there are too many members or one of the same name. The search is linear: 256 keys of 256 bytes that differ
// only in their last bytes cost 0.6 ms, parsing included; a map would make every ordinary body slower.
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

// Size returns the length of the text that was parsed.
func (o *Object) Size() int { return len(o.raw) }

// Has reports whether the object has a member of this name, null included.
func (o *Object) Has(name string) bool { return o.find(name) != nil }

// Get returns the raw value of a member, nil if there is none. It aliases the text.
func (o *Object) Get(name string) []byte {
	if m := o.find(name); m != nil {
		return o.raw[m.value:m.end]
	}
	return nil
}

// Remove removes a member: readers don't see it, and no rewrite contains it.
func (o *Object) Remove(name string) {
	if m := o.find(name); m != nil {
		m.gone = true
	}
}

// Members yields the unescaped names and raw values in their order. Values, and names without escapes, alias the text.
func (o *Object) Members() iter.Seq2[[]byte, []byte] {
	return func(yield func(name, value []byte) bool) {
		for i := range o.members {
			if m := &o.members[i]; !m.gone && !yield(m.name, o.raw[m.value:m.end]) {
				return
			}
		}
	}
}

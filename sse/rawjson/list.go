package rawjson

import (
	"iter"
	"math"
)

// List is an index of a JSON array, which saves later readers a scan. It aliases the text, which must not change.
type List struct {
	raw     []byte // nil for no list, and for other values
	spans   []elementSpan
	members []memberSpan // members of the indexed elements, in order
	rest    int          // where the other elements begin, 0 if all are indexed
}

type elementSpan struct{ start, end, members uint32 } // offsets in the text; members is the end of its members in List.members

type memberSpan struct{ start, keyEnd, value, end, text uint32 }

// Element is one element of a List.
type Element struct {
	Raw     []byte
	text    []byte
	members []memberSpan
}

// ElementMember is one member of an element that is an object.
type ElementMember struct {
	Key   []byte // between the quotes of the name, escapes as they are
	Value []byte
	Whole []byte // name and value
	Text  int    // length as UTF-8 if it is a string, escapes decoded
}

// Bounds of an index: one element and one member per sixteen bytes of text, plus leastNotes, so that a list of tiny elements can't take many
// times its text. Readers scan the other elements again. An element has at most as many members as an Object.
const (
	bytesPerNote = 16
	leastNotes   = 64

	bytesExpected, leastExpected, mostExpected = 1 << 10, 16, 240 // initial space for members
)

// List reads a value, and indexes it if it is an array. The text must be valid UTF-8.
func (s *Scanner) List() (List, error) {
	if s.Peek() != '[' {
		return List{}, s.Skip()
	}
	if len(s.Data) > math.MaxUint32 { // the spans have 32 bits
		return List{}, &Error{Code: CodeTooComplex, What: "text larger than 4 GiB", At: s.Pos}
	}
	base := s.Pos
	var l List
	if err := l.read(s, base); err != nil {
		return List{}, err
	}
	l.raw = s.Data[base:s.Pos]
	return l, nil
}

func (l *List) read(s *Scanner, base int) error {
	more, err := s.Open('[')
	if more {
		// A long message has at least one KiB per member: this is mostly enough, and small compared with the text.
		expected := leastExpected + min((len(s.Data)-base)/bytesExpected, mostExpected)
		l.members, l.spans = make([]memberSpan, 0, expected), make([]elementSpan, 0, expected/2)
	}
	for more && err == nil {
		start := s.Pos - base
		if l.rest == 0 && max(len(l.members), len(l.spans)) > leastNotes+start/bytesPerNote {
			l.rest = start
		}
		if l.rest == 0 {
			l.members, err = s.element(l.members, base)
			l.spans = append(l.spans, elementSpan{uint32(start), uint32(s.Pos - base), uint32(len(l.members))})
		} else {
			err = s.Skip()
		}
		if err == nil {
			more, err = s.Separator(']')
		}
	}
	return err
}

func (s *Scanner) element(members []memberSpan, base int) ([]memberSpan, error) {
	if s.Peek() != '{' {
		return members, s.Skip()
	}
	most := len(members) + maxMembers
	err := s.Members(func(at Member) error {
		if len(members) == most {
			return tooManyMembers(at.Start)
		}
		text := 0
		if s.Peek() == '"' {
			if err := s.SkipString(); err != nil {
				return err
			}
			text = s.textLen(at.Value)
		} else if err := s.Skip(); err != nil {
			return err
		}
		start := at.Start - base
		members = append(members, memberSpan{
			uint32(start), uint32(start + len(`"`) + len(at.Key)), uint32(at.Value - base), uint32(s.Pos - base), uint32(text),
		})
		return nil
	})
	return members, err
}

// IndexBytes returns the memory of the index in bytes, without the text.
func (l *List) IndexBytes() int {
	const span, member = 3 * 4, 5 * 4
	return span*cap(l.spans) + member*cap(l.members)
}

// IsArray reports whether the value is an array.
func (l *List) IsArray() bool { return l.raw != nil }

// Len returns the number of indexed elements: all, except in lists of very many small ones.
func (l *List) Len() int { return len(l.spans) }

// Elements yields the elements in order, each valid until the next.
func (l *List) Elements() iter.Seq[Element] {
	return func(yield func(Element) bool) {
		known := uint32(0)
		for _, at := range l.spans {
			if !yield(Element{Raw: l.raw[at.start:at.end], text: l.raw, members: l.members[known:at.members]}) {
				return
			}
			known = at.members
		}
		if l.rest == 0 {
			return
		}
		s := Scanner{Data: l.raw, Pos: l.rest}
		var members []memberSpan
		for more := true; more; more, _ = s.Separator(']') { // it has been read
			base := s.Pos
			members, _ = s.element(members[:0], base)
			if !yield(Element{Raw: l.raw[base:s.Pos], text: l.raw[base:], members: members}) {
				return
			}
		}
	}
}

// IsObject reports whether the element is an object. Others have no members.
func (e Element) IsObject() bool { return e.Raw[0] == '{' }

// Members yields the members in order, repeated names included.
func (e Element) Members() iter.Seq[ElementMember] {
	return func(yield func(ElementMember) bool) {
		for _, m := range e.members {
			if !yield(ElementMember{
				Key: e.text[m.start+1 : m.keyEnd], Value: e.text[m.value:m.end], Whole: e.text[m.start:m.end], Text: int(m.text),
			}) {
				return
			}
		}
	}
}

// Name returns the unescaped name, nil if it has no UTF-8 form.
func (m *ElementMember) Name() []byte {
	name, _ := Unescape(m.Key)
	return name
}

// IsText reports whether the value is a string.
func (m *ElementMember) IsText() bool { return m.Value[0] == '"' }

package rawjson

import (
	"iter"
	"math"
)

// List is an index of a JSON array: its elements, and the members of those that are objects. The first reading of the text makes it, so
// that later readers need not scan the text again. It aliases the text, which must not change any more.
type List struct {
	raw     []byte // nil for no list, and for a value that is not an array
	spans   []elementSpan
	members []memberSpan // of the elements in spans, in their order
	rest    int          // where the elements begin that are not in spans, 0 if all are there
}

// elementSpan is the position of an element, as offsets into the list's text.
type elementSpan struct{ start, end, members uint32 } // members is the end of its members in List.members

// memberSpan is the position of a member of an element, as offsets into the list's text.
type memberSpan struct{ start, keyEnd, value, end, text uint32 }

// Element is one element of a List.
type Element struct {
	Raw     []byte
	text    []byte
	members []memberSpan
}

// ElementMember is one member of an element that is an object.
type ElementMember struct {
	Key   []byte // the text between the quotes of the name, escapes as they are
	Value []byte
	Whole []byte // name and value
	Text  int    // length of the value as UTF-8, escapes decoded, if it is a string
}

// Bounds of a list's index: it has at most one element and one member for each sixteen bytes of text, plus leastNotes. So the index of a
// list of tiny elements can't take many times the memory of the text. Each reader scans the elements beyond the bound again. An element
// has at most as many members as an Object.
const (
	bytesPerNote = 16
	leastNotes   = 64

	bytesExpected, leastExpected, mostExpected = 1 << 10, 16, 240 // members that the index has space for from the beginning
)

// List reads a value of any kind, and returns its elements if it is an array. The text must be valid UTF-8.
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

// read reads the array at base and indexes its elements up to the bounds.
func (l *List) read(s *Scanner, base int) error {
	more, err := s.Open('[')
	if more {
		// A long message has at least one KiB of text for each member, so this is mostly enough, and small compared with the text.
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

// element reads an element and appends the spans of its members, as offsets from base.
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

// IndexBytes returns how many bytes of memory the index of a list takes, without the text.
func (l *List) IndexBytes() int {
	const span, member = 3 * 4, 5 * 4
	return span*cap(l.spans) + member*cap(l.members)
}

// IsArray reports whether the value is an array.
func (l *List) IsArray() bool { return l.raw != nil }

// Len returns the number of elements in the index: all elements, except in lists of very many small ones.
func (l *List) Len() int { return len(l.spans) }

// Elements yields the elements in their order. An element is valid until the next one comes.
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

// IsObject reports whether the element is an object. All others have no members.
func (e Element) IsObject() bool { return e.Raw[0] == '{' }

// Members yields the members of an element in their order, members with equal names included.
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

// Name returns the name with its escapes decoded, nil if it has no UTF-8 form.
func (m *ElementMember) Name() []byte {
	name, _ := Unescape(m.Key)
	return name
}

// IsText reports whether the value is a string.
func (m *ElementMember) IsText() bool { return m.Value[0] == '"' }

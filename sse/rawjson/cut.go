package rawjson

import (
	"io"
	"slices"
)

// Span is a range of bytes, From inclusive, To exclusive.
type Span struct{ From, To int }

// FindMember appends the ranges to cut for an object without a top-level member, ascending, and returns the member's last value. Each is one
// occurrence, under any spelling, with the comma before it, or after it if no member before it stays. Anything but one JSON object has
// none. Depth does not matter, see Scanner.Pass.
func FindMember(object []byte, member string, cuts []Span) (value []byte, _ []Span) {
	s := Scanner{Data: object}
	s.Space()
	found := cuts
	stays := false
	err := s.Members(func(m Member) error {
		if err := s.Pass(); err != nil {
			return err
		}
		if !m.Named(member) {
			stays = true
			return nil
		}
		value = object[m.Value:s.Pos]
		cut := Span{m.Start, s.Pos}
		if stays {
			cut.From = m.Comma
		} else if s.Space(); s.Peek() == ',' {
			cut.To = s.Pos + 1
		}
		found = append(found, cut)
		return nil
	})
	if err != nil || !s.End() {
		return nil, cuts
	}
	return value, found
}

// Blanks finds members in a JSON text that comes in pieces, because it is too long to be held. It looks no deeper than the choices of an
// answer, and only for names without escapes.
type Blanks struct {
	Names []string
	First []byte // the last value of the first name, at most maxBlank bytes

	depth   int
	inText  bool
	escaped bool
	text    []byte // the last text, at most maxName bytes
	value   int    // depth of the object whose member's value comes next, 0 for none
	kept    bool   // the value is of the first name
	begins  bool   // the value has no byte yet
}

// Blank is a part of a value.
type Blank struct {
	Span
	Begins bool // it is the first part
}

// maxBlank is the most bytes of a value that are kept, as for transfer parameters.
const maxBlank = 1 << 20

const (
	deepest = 3  // depth of the search
	maxName = 32 // longer names are not found
)

// Nuller writes a JSON text that comes in pieces, with null in place of the values that its Blanks find. It takes the text to the end even if it can't
// be written.
type Nuller struct {
	Blanks
	Err   error // of the first write or flush that failed
	to    io.Writer
	flush func() error
}

// NewNuller returns a Nuller of the values of these members. It calls flush behind each piece.
func NewNuller(to io.Writer, flush func() error, names []string) *Nuller {
	return &Nuller{Blanks: Blanks{Names: names}, to: to, flush: flush}
}

// Write implements io.Writer.
func (n *Nuller) Write(piece []byte) (int, error) {
	done := 0
	for _, blank := range n.Next(piece) {
		n.write(piece[done:blank.From])
		if done = blank.To; blank.Begins {
			n.write([]byte("null"))
		}
	}
	if n.write(piece[done:]); n.Err == nil {
		n.Err = n.flush()
	}
	return len(piece), nil
}

func (n *Nuller) write(text []byte) {
	if n.Err == nil {
		_, n.Err = n.to.Write(text)
	}
}

// Next returns the values in the next piece, ascending.
func (b *Blanks) Next(piece []byte) (found []Blank) {
	from := 0
	for i, c := range piece {
		switch {
		case b.inText:
			b.inText = c != '"' || b.escaped
			b.escaped = c == '\\' && !b.escaped
			if b.inText && len(b.text) < maxName {
				b.text = append(b.text, c)
			}
		case c == '"':
			b.inText, b.text = true, b.text[:0]
		case c == '{', c == '[':
			b.depth++
		case c == ':':
			if name := slices.Index(b.Names, string(b.text)); name >= 0 && b.value == 0 && b.depth <= deepest {
				if b.kept = name == 0; b.kept {
					b.First = nil
				}
				b.value, b.begins, from = b.depth, true, i+1
			}
		case c == ',' || c == '}' || c == ']':
			if b.value > 0 && b.value == b.depth {
				found = b.add(found, piece, Span{from, i})
				b.value = 0
			}
			if c != ',' {
				b.depth--
			}
		}
	}
	if b.value > 0 {
		found = b.add(found, piece, Span{from, len(piece)})
	}
	return found
}

func (b *Blanks) add(found []Blank, piece []byte, part Span) []Blank {
	if part.From == part.To {
		return found
	}
	if b.kept {
		b.First = append(b.First, piece[part.From:min(part.To, part.From+maxBlank-len(b.First))]...)
	}
	found = append(found, Blank{part, b.begins})
	b.begins = false
	return found
}

package rawjson

// Span is a range of bytes, From inclusive, To exclusive.
type Span struct{ From, To int }

// Cut removes a top-level member, with one comma next to it, from a JSON object and leaves every other byte as it is.
// All occurrences of the member go, under any spelling of its name; value is the last one, a slice of object. For
// anything but one JSON object, and for an object without the member, found is false and rest is object itself. The
// depth of the object does not matter, see Scanner.Pass.
func Cut(object []byte, member string) (rest, value []byte, found bool) {
	value, cuts := FindMember(object, member, nil)
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

// FindMember appends to cuts the ranges that Cut removes, in ascending order, and returns the member's last value. A
// range includes the comma before the member, or the comma behind it if all members before it are removed too.
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

// Pass reads a value of any kind and depth. It does not check what is nested deeper than MaxDepth: there it only counts brackets of
// all kinds outside of strings, which takes no stack. So a caller can cut a secret member even if its neighbour is nested too deep to
// be read.
func (s *Scanner) Pass() error {
	s.deep = true
	err := s.Skip()
	s.deep = false
	return err
}

// balance skips the array or object at Pos without checking its content.
func (s *Scanner) balance() error {
	for open := 0; ; {
		switch s.Peek() {
		case '"':
			if err := s.SkipString(); err != nil {
				return err
			}
			continue
		case '{', '[':
			open++
		case '}', ']':
			open--
		case 0:
			return s.Fault("unfinished array or object")
		}
		if s.Pos++; open == 0 {
			return nil
		}
	}
}

package rawjson

import (
	"bytes"
	"math"
)

// SkipNumber reads a number: RFC 8259 section 6.
func (s *Scanner) SkipNumber() error {
	if s.Peek() == '-' {
		s.Pos++
	}
	if s.Peek() == '0' {
		s.Pos++
	} else if !s.digits() {
		return s.Fault("unexpected byte")
	}
	if s.Peek() == '.' {
		s.Pos++
		if !s.digits() {
			return s.Fault("expected a digit")
		}
	}
	if c := s.Peek(); c == 'e' || c == 'E' {
		s.Pos++
		if c = s.Peek(); c == '+' || c == '-' {
			s.Pos++
		}
		if !s.digits() {
			return s.Fault("expected a digit")
		}
	}
	return nil
}

func (s *Scanner) digits() bool {
	start := s.Pos
	for s.Pos < len(s.Data) && s.Data[s.Pos]-'0' <= 9 {
		s.Pos++
	}
	return s.Pos > start
}

// Integer reads a value that is an integer literal: no fraction, no exponent, no quotes, and not -0, which is a float to some
// parsers. A value that an int cannot hold becomes the largest or smallest int, which every bound refuses.
func Integer(raw []byte) (n int, ok bool) {
	digits := bytes.TrimPrefix(raw, []byte("-"))
	for _, c := range digits {
		if c < '0' || c > '9' {
			return 0, false
		}
		if n > (math.MaxInt-9)/10 {
			n = math.MaxInt
			continue
		}
		n = n*10 + int(c-'0')
	}
	if len(digits) < len(raw) {
		return -n, n > 0
	}
	return n, len(digits) > 0
}

// Package rawjson reads, cuts and rewrites JSON texts (RFC 8259), and decodes only what the caller asks for. Decoding everything would change
// it: a float64 round trip turns 9007199254740993 into ...992 and re-escapes every "<".
//
// It promises:
//   - It reads nothing deeper than MaxDepth, so that no text can fill a stack. Scanner.Pass skips deeper values in constant memory.
//   - Up to that depth it accepts what encoding/json accepts, invalid UTF-8 in strings included (scanner.go, number.go, text.go). Objects and
//     their Lists refuse invalid UTF-8.
//   - An Object has one meaning for all parsers: repeated names, and names without a UTF-8 form, are refused. (object.go)
//   - Of members with one name the last counts, as in the engines. (get.go)
//   - Bytes outside of an edit or cut stay in their order, white space included. (edits.go, cut.go)
//   - A text is read in one pass without allocations, except ParseObject (its members), Scanner.List (its index) and ParseIDs (the list).
//
// Errors are *Error. They repeat only a top-level name, because the texts contain prompts. The simulator of engines does not import the
// package, because it must not share its mistakes.
package rawjson

import (
	"bytes"
	"fmt"
)

// MaxDepth is how deep arrays and objects may nest. No engine's answer has more than a dozen levels, and the recursion stays within one small
// stack. Readers without a bound (gjson.ValidBytes) overflow it at a few million levels, which ends a Go process.
const MaxDepth = 64

// Scanner walks over a text once. Each method expects Pos at the thing of its name and leaves Pos behind it, or at the fault. It counts the
// levels that Open has opened and Separator has not closed.
type Scanner struct {
	Data []byte
	Pos  int

	depth int
	deep  bool // Pass is running: it only balances what is nested too deep
	over  int  // bytes by which the last string is longer than its decoded text
}

// Fault returns the error for invalid JSON at Pos.
func (s *Scanner) Fault(what string) error {
	return &Error{Code: CodeInvalidJSON, What: what, At: s.Pos}
}

// Peek returns the byte at Pos, or NUL at the end: NUL is legal nowhere in JSON.
func (s *Scanner) Peek() byte {
	if s.Pos < len(s.Data) {
		return s.Data[s.Pos]
	}
	return 0
}

// Space skips white space. There is rarely any, so the first check is small enough to be inlined.
func (s *Scanner) Space() {
	if s.Pos < len(s.Data) && s.Data[s.Pos] <= ' ' {
		s.spaces()
	}
}

func (s *Scanner) spaces() {
	for s.Pos < len(s.Data) {
		switch s.Data[s.Pos] {
		case ' ', '\n', '\r', '\t':
			s.Pos++
		default:
			return
		}
	}
}

// End skips white space and reports whether the text ends there.
func (s *Scanner) End() bool {
	s.Space()
	return s.Pos == len(s.Data)
}

// Open reads an opening bracket and moves to the first element (more), or behind the closing bracket of an empty value.
func (s *Scanner) Open(opening byte) (more bool, err error) {
	if s.Peek() != opening {
		if opening == '{' {
			return false, s.Fault("not an object")
		}
		return false, s.Fault("not an array")
	}
	if s.depth == MaxDepth {
		return false, &Error{Code: CodeTooComplex, What: "nested deeper than 64 levels", At: s.Pos}
	}
	s.Pos++
	s.Space()
	if s.Peek() == closing(opening) {
		s.Pos++
		return false, nil
	}
	s.depth++
	return true, nil
}

// closing: '[' and ']', and '{' and '}', are two apart in ASCII.
func closing(opening byte) byte { return opening + 2 }

// Separator reads a comma and the white space before the next element (more), or the closing bracket.
func (s *Scanner) Separator(closing byte) (more bool, err error) {
	s.Space()
	switch s.Peek() {
	case ',':
		s.Pos++
		s.Space()
		return true, nil
	case closing:
		s.Pos++
		s.depth--
		return false, nil
	}
	return false, s.Fault("expected a comma or the end of an object or array")
}

// Elements reads an array. At each element it calls read, which must read the element; its error ends the walk.
func (s *Scanner) Elements(read func() error) error {
	more, err := s.Open('[')
	for more && err == nil {
		if err = read(); err != nil {
			return err
		}
		more, err = s.Separator(']')
	}
	return err
}

func (s *Scanner) key() (raw []byte, err error) {
	start := s.Pos
	if s.Peek() != '"' {
		return nil, s.Fault("expected a key")
	}
	if err := s.SkipString(); err != nil {
		return nil, err
	}
	raw = s.Data[start+1 : s.Pos-1]
	s.Space()
	if s.Peek() != ':' {
		return nil, s.Fault("expected a colon")
	}
	s.Pos++
	s.Space()
	return raw, nil
}

// Skip reads a value of any kind.
func (s *Scanner) Skip() error {
	switch c := s.Peek(); c {
	case '"':
		return s.SkipString()
	case '{', '[':
		return s.container(c)
	case 't':
		return s.SkipWord("true")
	case 'f':
		return s.SkipWord("false")
	case 'n':
		return s.SkipWord("null")
	}
	return s.SkipNumber()
}

func (s *Scanner) container(opening byte) error {
	if s.deep && s.depth == MaxDepth {
		return s.balance()
	}
	more, err := s.Open(opening)
	for more && err == nil {
		if opening == '{' {
			if _, err = s.key(); err != nil {
				return err
			}
		} else if s.Peek()-'0' <= 9 {
			s.Pos = integers(s.Data, s.Pos)
			s.Space()
		}
		if err = s.Skip(); err != nil {
			return err
		}
		more, err = s.Separator(closing(opening))
	}
	return err
}

// SkipWord reads true, false or null.
func (s *Scanner) SkipWord(word string) error {
	if !bytes.HasPrefix(s.Data[s.Pos:], []byte(word)) {
		return s.Fault("unknown literal")
	}
	s.Pos += len(word)
	return nil
}

// Valid reports whether data is one JSON value, at most MaxDepth levels deep. White space around it is allowed.
func Valid(data []byte) bool {
	s := Scanner{Data: data}
	s.Space()
	return s.Skip() == nil && s.End()
}

// IsNull reports whether a value is absent or null.
func IsNull(raw []byte) bool { return raw == nil || string(raw) == "null" }

// IsEmpty reports whether a value that a Scanner has read is null, [] or {}.
func IsEmpty(raw []byte) bool {
	switch raw[0] {
	case 'n':
		return true
	case '[', '{':
		s := Scanner{Data: raw, Pos: 1}
		s.Space()
		return s.Pos == len(raw)-1
	}
	return false
}

// Pass reads a value of any depth. Beyond MaxDepth it only counts brackets outside of strings, which takes no stack. So a secret member can be
// cut even beside a value that is nested too deep to be read.
func (s *Scanner) Pass() error {
	s.deep = true
	err := s.Skip()
	s.deep = false
	return err
}

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

// The codes of errors.
const (
	CodeInvalidJSON  = "invalid_json"
	CodeInvalidUTF8  = "invalid_utf8"
	CodeDuplicateKey = "duplicate_key"
	CodeTooComplex   = "too_complex" // nested too deep, too many members, a name too long
)

// Error is a fault of a text. It repeats nothing of the text but Key.
type Error struct {
	Code string
	Key  string // the unescaped top-level name at fault, "" if none is
	What string
	At   int // byte of the text
}

// Error says what is wrong, and at which byte.
func (e *Error) Error() string { return fmt.Sprintf("%s at byte %d", e.What, e.At) }

package upstream

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"unicode/utf16"
	"unicode/utf8"
)

// Bounds on foreign JSON. They stop bombs (depth, breadth, endless keys) far
// above what any client or engine sends; 64 levels also keep the scanner's
// recursion within one small stack.
const (
	maxDepth   = 64
	maxMembers = 256
	maxKey     = 256
)

// Codes of what a scan refuses; BadRequestError carries them to the client as
// they are.
const (
	codeInvalidJSON  = "invalid_json"
	codeInvalidUTF8  = "invalid_utf8"
	codeDuplicateKey = "duplicate_key"
	codeTooComplex   = "too_complex"
)

// scanError says what is wrong with a JSON text and where, without repeating
// any of it.
type scanError struct {
	code string
	key  string // the top-level key at fault, "" if it is not about one
	what string
	at   int
}

func (e *scanError) Error() string { return fmt.Sprintf("%s at byte %d", e.what, e.at) }

// scanner walks a JSON text once. Its methods expect pos at the thing they are
// named for and leave it one past that thing.
type scanner struct {
	data []byte
	pos  int
}

func (s *scanner) fault(what string) error {
	return &scanError{code: codeInvalidJSON, what: what, at: s.pos}
}

// peek returns the byte at pos, or NUL at the end: NUL is legal nowhere in
// JSON, so no caller can mistake it.
func (s *scanner) peek() byte {
	if s.pos < len(s.data) {
		return s.data[s.pos]
	}
	return 0
}

// space skips white space. Nearly always there is none, and this half of it is
// small enough to be inlined.
func (s *scanner) space() {
	if s.pos < len(s.data) && s.data[s.pos] <= ' ' {
		s.spaces()
	}
}

func (s *scanner) spaces() {
	for s.pos < len(s.data) {
		switch s.data[s.pos] {
		case ' ', '\n', '\r', '\t':
			s.pos++
		default:
			return
		}
	}
}

// separator reads what follows an element: a comma and the space up to the next
// element (more), or closing.
func (s *scanner) separator(closing byte) (more bool, err error) {
	s.space()
	switch s.peek() {
	case ',':
		s.pos++
		s.space()
		return true, nil
	case closing:
		s.pos++
		return false, nil
	}
	return false, s.fault("expected a comma or the end of an object or array")
}

// key reads a key with its colon and returns the raw text between the quotes.
func (s *scanner) key() ([]byte, error) {
	start := s.pos
	if s.peek() != '"' {
		return nil, s.fault("expected a key")
	}
	if err := s.str(); err != nil {
		return nil, err
	}
	raw := s.data[start+1 : s.pos-1]
	s.space()
	if s.peek() != ':' {
		return nil, s.fault("expected a colon")
	}
	s.pos++
	s.space()
	return raw, nil
}

// member reads one top-level member.
func (s *scanner) member(read func(*scanner, []byte) error) (objectMember, error) {
	m := objectMember{start: s.pos}
	raw, err := s.key()
	if err != nil {
		return m, err
	}
	name, ok := unescape(raw)
	switch {
	case !ok:
		// Such a key has no UTF-8 form, so two different ones would compare
		// as equal (RFC 8259, 8.2).
		return m, &scanError{code: codeInvalidUTF8, what: "unpaired surrogate in a key", at: m.start}
	case len(name) > maxKey:
		return m, &scanError{code: codeTooComplex, what: "key longer than 256 bytes", at: m.start}
	}
	m.name, m.value = name, s.pos
	if read == nil {
		err = s.skip(1)
	} else {
		err = read(s, name)
	}
	m.end = s.pos
	return m, err
}

// skip reads any value that stands inside depth containers.
func (s *scanner) skip(depth int) error {
	switch c := s.peek(); c {
	case '"':
		return s.str()
	case '{', '[':
		return s.container(c, depth+1)
	case 't':
		return s.literal("true")
	case 'f':
		return s.literal("false")
	case 'n':
		return s.literal("null")
	}
	return s.number()
}

func (s *scanner) container(opening byte, depth int) error {
	if depth > maxDepth {
		return &scanError{code: codeTooComplex, what: "nested deeper than 64 levels", at: s.pos}
	}
	closing := opening + 2 // '[' and ']', '{' and '}' are two apart in ASCII
	s.pos++
	s.space()
	if s.peek() == closing {
		s.pos++
		return nil
	}
	for more := true; more; {
		if opening == '{' {
			if _, err := s.key(); err != nil {
				return err
			}
		}
		err := s.skip(depth)
		if err != nil {
			return err
		}
		if more, err = s.separator(closing); err != nil {
			return err
		}
	}
	return nil
}

func (s *scanner) literal(word string) error {
	if !bytes.HasPrefix(s.data[s.pos:], []byte(word)) {
		return s.fault("unknown literal")
	}
	s.pos += len(word)
	return nil
}

// number reads a number: RFC 8259 section 6.
func (s *scanner) number() error {
	if s.peek() == '-' {
		s.pos++
	}
	if s.peek() == '0' {
		s.pos++
	} else if !s.digits() {
		return s.fault("unexpected byte")
	}
	if s.peek() == '.' {
		s.pos++
		if !s.digits() {
			return s.fault("expected a digit")
		}
	}
	if c := s.peek(); c == 'e' || c == 'E' {
		s.pos++
		if c = s.peek(); c == '+' || c == '-' {
			s.pos++
		}
		if !s.digits() {
			return s.fault("expected a digit")
		}
	}
	return nil
}

func (s *scanner) digits() bool {
	start := s.pos
	for s.pos < len(s.data) && s.data[s.pos]-'0' <= 9 {
		s.pos++
	}
	return s.pos > start
}

// str reads a string. Nearly all of a body is inside strings, so it looks at
// eight bytes at a time.
func (s *scanner) str() error {
	data, i := s.data, s.pos+1
	for {
		for i+8 <= len(data) {
			special := specials(binary.LittleEndian.Uint64(data[i:]))
			if special != 0 {
				i += bits.TrailingZeros64(special) / 8
				break
			}
			i += 8
		}
		if i >= len(data) {
			s.pos = len(data)
			return s.fault("unfinished string")
		}
		switch c := data[i]; {
		case c == '"':
			s.pos = i + 1
			return nil
		case c == '\\':
			n := escapeLen(data[i:])
			if n == 0 {
				s.pos = i
				return s.fault("invalid escape")
			}
			i += n
		case c < 0x20:
			s.pos = i
			return s.fault("control character in a string")
		default:
			i++ // the last seven bytes of the text come one by one
		}
	}
}

// specials marks the high bit of each byte of w that ends a run of plain string
// bytes: a quote, a backslash, a control character. A borrow can mark bytes
// above a true mark wrongly, never below, and only the lowest mark is used.
func specials(w uint64) uint64 {
	const ones, high = 0x0101010101010101, 0x8080808080808080
	quote, slash := w^ones*'"', w^ones*'\\'
	return ((quote-ones)&^quote | (slash-ones)&^slash | (w-ones*0x20)&^w) & high
}

// escapeLen returns the length of the escape sequence that b begins with, 0 if
// it is none.
func escapeLen(b []byte) int {
	if len(b) < 2 {
		return 0
	}
	switch b[1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2
	case 'u':
		if _, ok := hex4(b[2:]); ok {
			return 6
		}
	}
	return 0
}

// unescape decodes the inside of a scanned JSON string. Without a backslash it
// returns raw itself. ok is false for an unpaired surrogate: it has no UTF-8
// form, and what decoders replace it with would make different strings equal.
func unescape(raw []byte) (text []byte, ok bool) {
	slash := bytes.IndexByte(raw, '\\')
	if slash < 0 {
		return raw, true
	}
	text = make([]byte, 0, len(raw))
	for ; slash >= 0; slash = bytes.IndexByte(raw, '\\') {
		text = append(text, raw[:slash]...)
		c := raw[slash+1]
		if raw = raw[slash+2:]; c != 'u' {
			text = append(text, plain(c))
			continue
		}
		r, _ := hex4(raw)
		raw = raw[4:]
		if utf16.IsSurrogate(r) {
			low, paired := rune(0), false
			if bytes.HasPrefix(raw, []byte(`\u`)) {
				low, paired = hex4(raw[2:])
			}
			if r = utf16.DecodeRune(r, low); !paired || r == utf8.RuneError {
				return nil, false
			}
			raw = raw[6:]
		}
		text = utf8.AppendRune(text, r)
	}
	return append(text, raw...), true
}

// plain returns the byte that a two-byte escape ending in c stands for.
func plain(c byte) byte {
	switch c {
	case 'b':
		return '\b'
	case 'f':
		return '\f'
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	}
	return c
}

// hex4 reads the four digits of a \u escape.
func hex4(b []byte) (r rune, ok bool) {
	if len(b) < 4 {
		return 0, false
	}
	for _, c := range b[:4] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}

// integer reads a value that is an integer literal: no fraction, no exponent, no
// quotes, no -0, which is a float to some parsers. Values that an int
// cannot hold come back as its largest or smallest, which every bound refuses.
func integer(raw []byte) (n int, ok bool) {
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

// text decodes a value that is a string.
func text(raw []byte) (string, bool) {
	if len(raw) == 0 || raw[0] != '"' {
		return "", false
	}
	decoded, ok := unescape(raw[1 : len(raw)-1])
	return string(decoded), ok
}

// isNull reports whether a value is absent or null.
func isNull(raw []byte) bool { return raw == nil || string(raw) == "null" }

// eachKey calls visit for every key of every object inside value, at any depth,
// with the unescaped key and the text from its value on, until visit returns
// false. value has been scanned; a string is a key exactly if a colon follows
// it.
func eachKey(value []byte, visit func(name, rest []byte) bool) {
	s := scanner{data: value}
	for {
		quote := bytes.IndexByte(value[s.pos:], '"')
		if quote < 0 {
			return
		}
		s.pos += quote
		start := s.pos + 1
		if s.str() != nil {
			return
		}
		raw := value[start : s.pos-1]
		if s.space(); s.peek() != ':' {
			continue
		}
		s.pos++
		s.space()
		name, ok := unescape(raw)
		if ok && !visit(name, value[s.pos:]) {
			return
		}
	}
}

package convcache

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"unicode/utf16"
	"unicode/utf8"
)

// stringHead is the length of what precedes the bytes of an encoded string: tag and length.
const stringHead = 9

// text reads a string and appends its decoded bytes behind tag and length.
func (c *canonical) text() error {
	start := len(c.out)
	c.out = append(c.out, tagString, 0, 0, 0, 0, 0, 0, 0, 0)
	c.pos++
	for {
		from := c.pos
		for c.pos < len(c.in) && c.in[c.pos] >= ' ' && c.in[c.pos] != '"' && c.in[c.pos] != '\\' {
			c.pos++
		}
		c.out = append(c.out, c.in[from:c.pos]...)
		switch {
		case c.pos == len(c.in):
			return c.fault("string without end")
		case c.in[c.pos] == '"':
			c.pos++
			binary.BigEndian.PutUint64(c.out[start+1:], uint64(len(c.out)-start-stringHead))
			return nil
		case c.in[c.pos] == '\\':
			if err := c.escape(); err != nil {
				return err
			}
		default:
			return c.fault("control character in a string")
		}
	}
}

// escape reads one escape sequence, or the two of a surrogate pair, and appends what it stands for.
func (c *canonical) escape() error {
	c.pos++
	if c.pos == len(c.in) {
		return c.fault("string without end")
	}
	b := c.in[c.pos]
	c.pos++
	switch b {
	case '"', '\\', '/':
		c.out = append(c.out, b)
	case 'b':
		c.out = append(c.out, '\b')
	case 'f':
		c.out = append(c.out, '\f')
	case 'n':
		c.out = append(c.out, '\n')
	case 'r':
		c.out = append(c.out, '\r')
	case 't':
		c.out = append(c.out, '\t')
	case 'u':
		r, ok := c.hex4()
		if ok && utf16.IsSurrogate(r) && bytes.HasPrefix(c.in[c.pos:], []byte(`\u`)) {
			c.pos += 2
			var low rune
			if low, ok = c.hex4(); ok {
				r = utf16.DecodeRune(r, low)
				ok = r != utf8.RuneError // a pair never stands for U+FFFD
			}
		}
		if !ok || utf16.IsSurrogate(r) {
			return c.fault("bad \\u escape")
		}
		c.out = utf8.AppendRune(c.out, r)
	default:
		return c.fault("unknown escape")
	}
	return nil
}

// hex4 reads the four digits of a \u escape.
func (c *canonical) hex4() (rune, bool) {
	if len(c.in)-c.pos < 4 {
		return 0, false
	}
	var r rune
	for _, b := range c.in[c.pos : c.pos+4] {
		switch {
		case '0' <= b && b <= '9':
			b -= '0'
		case 'a' <= b && b <= 'f':
			b -= 'a' - 10
		case 'A' <= b && b <= 'F':
			b -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(b)
	}
	c.pos += 4
	return r, true
}

// number reads a number and appends its literal text behind tag and length.
func (c *canonical) number() error {
	n := numberLength(c.in[c.pos:])
	if n == 0 {
		return c.fault("want a value")
	}
	c.out = append(c.out, tagNumber)
	c.out = binary.BigEndian.AppendUint64(c.out, uint64(n))
	c.out = append(c.out, c.in[c.pos:c.pos+n]...)
	c.pos += n
	return nil
}

// numberLength returns how many bytes at the start of in are a number (RFC 8259 section 6), 0 when
// none is there.
func numberLength(in []byte) int {
	n := 0
	digits := func() bool {
		from := n
		for n < len(in) && '0' <= in[n] && in[n] <= '9' {
			n++
		}
		return n > from
	}
	if n < len(in) && in[n] == '-' {
		n++
	}
	if n < len(in) && in[n] == '0' {
		n++
	} else if !digits() {
		return 0
	}
	if n < len(in) && in[n] == '.' {
		n++
		if !digits() {
			return 0
		}
	}
	if n < len(in) && (in[n] == 'e' || in[n] == 'E') {
		n++
		if n < len(in) && (in[n] == '+' || in[n] == '-') {
			n++
		}
		if !digits() {
			return 0
		}
	}
	return n
}

// literal reads one of the three words of JSON.
func (c *canonical) literal(word string, tag byte) error {
	if !bytes.HasPrefix(c.in[c.pos:], []byte(word)) {
		return c.fault("want a value")
	}
	c.pos += len(word)
	c.out = append(c.out, tag)
	return nil
}

// next skips white space and returns the byte there without consuming it, 0 at the end.
func (c *canonical) next() byte {
	for c.pos < len(c.in) {
		switch b := c.in[c.pos]; b {
		case ' ', '\t', '\n', '\r':
			c.pos++
		default:
			return b
		}
	}
	return 0
}

// end refuses anything but white space behind the value.
func (c *canonical) end() error {
	if c.next(); c.pos < len(c.in) {
		return c.fault("bytes after the value")
	}
	return nil
}

// fault names what is wrong and where. It quotes nothing: what is read here are prompts.
func (c *canonical) fault(what string) error {
	return fmt.Errorf("read JSON at byte %d: %s", c.pos, what)
}

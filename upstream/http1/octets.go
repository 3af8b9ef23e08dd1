package http1

import "strings"

// isToken reports whether text is a token (RFC 9110, 5.6.2).
func isToken[T string | []byte](text T) bool {
	for i := range len(text) {
		if !tokenBytes[text[i]] {
			return false
		}
	}
	return len(text) > 0
}

// tokenBytes are the bytes that a token may contain.
var tokenBytes = func() (is [256]bool) { //nolint:gochecknoglobals // a table that nothing changes
	for b := range is {
		is[b] = b < 0x80 && (b >= '0' && b <= '9' || b|0x20 >= 'a' && b|0x20 <= 'z' || strings.IndexByte("!#$%&'*+-.^_`|~", byte(b)) >= 0)
	}
	return is
}()

// isValue reports whether text can be the value of a header field: no control character but the tabulator (RFC 9110,
// 5.5). Bytes above ASCII are opaque.
func isValue[T string | []byte](text T) bool {
	for i := range len(text) {
		if b := text[i]; b < ' ' && b != '\t' || b == 0x7f {
			return false
		}
	}
	return true
}

// same reports whether text is a word, whatever its case; word is in lower case.
func same(text []byte, word string) bool {
	if len(text) != len(word) {
		return false
	}
	for i, b := range text {
		if b >= 'A' && b <= 'Z' {
			b |= 0x20
		}
		if b != word[i] {
			return false
		}
	}
	return true
}

// trim removes blanks and tabulators from both ends.
func trim(text []byte) []byte {
	for len(text) > 0 && (text[0] == ' ' || text[0] == '\t') {
		text = text[1:]
	}
	for len(text) > 0 && (text[len(text)-1] == ' ' || text[len(text)-1] == '\t') {
		text = text[:len(text)-1]
	}
	return text
}

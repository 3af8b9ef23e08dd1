package bpe

import (
	"strings"
	"unicode/utf8"
)

// Detokenizer turns sampled ids into text piece by piece. Like Hugging Face's DecodeStream, it holds back text that ends in
// U+FFFD, because the next id may complete a character. A character that is never completed is never shown
// (testdata/exchanges 04 and 05).
type Detokenizer struct {
	Tok  *Tokenizer
	held []byte
}

// Push returns the text that is final once id has come. Special tokens have no text (skip_special_tokens).
func (d *Detokenizer) Push(id int32) string {
	if IsSpecial(id) {
		return ""
	}
	d.held = append(d.held, d.Tok.Bytes[id]...)
	text := replaceInvalid(d.held)
	if strings.HasSuffix(text, string(utf8.RuneError)) {
		return ""
	}
	d.held = d.held[:0]
	return text
}

// replaceInvalid decodes UTF-8 as Python's errors="replace" does: one U+FFFD for each maximal part of a character that
// a well-formed sequence could begin with (Unicode 15, section 3.9, "substitution of maximal subparts").
func replaceInvalid(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	var out strings.Builder
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		if r == utf8.RuneError && n == 1 {
			n = maximalSubpart(b)
			out.WriteRune(utf8.RuneError)
		} else {
			out.Write(b[:n])
		}
		b = b[n:]
	}
	return out.String()
}

// maximalSubpart returns how many bytes at the beginning of the ill-formed b form the beginning of a character.
func maximalSubpart(b []byte) int {
	second := [2]byte{0x80, 0xbf}
	length := 1
	switch c := b[0]; {
	case c >= 0xc2 && c <= 0xdf:
		length = 2
	case c >= 0xe0 && c <= 0xef:
		length = 3
		switch c {
		case 0xe0:
			second[0] = 0xa0
		case 0xed:
			second[1] = 0x9f
		}
	case c >= 0xf0 && c <= 0xf4:
		length = 4
		switch c {
		case 0xf0:
			second[0] = 0x90
		case 0xf4:
			second[1] = 0x8f
		}
	}
	n := 1
	for n < length && n < len(b) && b[n] >= second[0] && b[n] <= second[1] {
		n++
		second = [2]byte{0x80, 0xbf}
	}
	return n
}

package bpe

import (
	"strings"
	"unicode/utf8"

	"golang.org/x/text/encoding/unicode"
)

// Detokenizer turns sampled ids into text piece by piece. Like Hugging Face's DecodeStream, it holds back text that ends in U+FFFD, because
// the next id may complete a character. It never shows a character that is never completed (testdata/exchanges 04 and 05).
type Detokenizer struct {
	Tok  *Tokenizer
	held []byte
}

// Push returns the text that is final after id. Special tokens have no text (skip_special_tokens).
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
	text, _ := unicode.UTF8.NewDecoder().Bytes(b) // never fails
	return string(text)
}

package bpe

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// pretoken returns the length in bytes of the first pre-token of s, which must not be empty.
// It follows GPT-2's pattern
//
//	's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
//
// by hand, because Go's regexp has no look-ahead. BPE never merges across pre-tokens.
func pretoken(s string) int {
	if n := contraction(s); n > 0 {
		return n
	}
	start := 0
	if s[0] == ' ' && len(s) > 1 {
		start = 1
	}
	r, _ := utf8.DecodeRuneInString(s[start:])
	if class := classOf(r); class != classSpace {
		return start + runLength(s[start:], class)
	}
	n := runLength(s, classSpace)
	if n == len(s) {
		return n
	}
	_, last := utf8.DecodeLastRuneInString(s[:n])
	if n > last {
		return n - last
	}
	return n
}

func contraction(s string) int {
	if s[0] != '\'' {
		return 0
	}
	for _, c := range [...]string{"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"} {
		if strings.HasPrefix(s, c) {
			return len(c)
		}
	}
	return 0
}

type runeClass int

const (
	classOther runeClass = iota
	classSpace
	classLetter
	classNumber
)

func classOf(r rune) runeClass {
	switch {
	case unicode.IsSpace(r):
		return classSpace
	case unicode.IsLetter(r):
		return classLetter
	case unicode.IsNumber(r):
		return classNumber
	default:
		return classOther
	}
}

func runLength(s string, class runeClass) int {
	for i, r := range s {
		if classOf(r) != class {
			return i
		}
	}
	return len(s)
}

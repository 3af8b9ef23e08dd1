package bpe

import (
	"regexp"
	"unicode"
	"unicode/utf8"
)

// pretokens is GPT-2's pattern without the look-ahead, which Go does not have:
//
//	's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
var pretokens = regexp.MustCompile(`^(?:'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\v\x{85}\p{Z}\p{L}\p{N}]+|[\s\v\x{85}\p{Z}]+)`)

// pretoken returns the length in bytes of the first pre-token of s, which must not be empty. BPE never merges across pre-tokens.
func pretoken(s string) int {
	found := pretokens.FindString(s)
	r, last := utf8.DecodeLastRuneInString(found)
	// The last of several spaces belongs to what follows them.
	if unicode.IsSpace(r) && len(found) < len(s) && len(found) > last {
		return len(found) - last
	}
	return len(found)
}

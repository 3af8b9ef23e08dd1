package convcache

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
)

// historyKeyVersion opens the input from which the history key is made; see Secret.Derive.
const historyKeyVersion byte = 6

// longString is from how many bytes on a string is taken into a digest by its length and tag. A tag costs as much as the SHA-256 of
// some 300 bytes and then a seventh of it per byte: 256 KiB take 26 µs instead of 184.
const longString = 512

// HistoryKey keys the tags by which long strings are taken into digests of histories. A tag is the 128-bit GMAC of the string (NIST SP
// 800-38D), with one nonce for all. What repeating a nonce gives away is the key to who sees two tags, and nobody does: they go into a
// SHA-256 and are forgotten. Without a view of tags, two strings of n bytes that somebody has chosen have the same one with a probability
// of n/2^132 at most, which is less than 2^-100 for all that a body may have.
//
// The zero HistoryKey takes all strings in as they are, which proves as much and costs more. It prints as "[history key]".
type HistoryKey struct{ tags cipher.AEAD }

// HistoryKey returns the key of all digests under this secret. Where Go refuses the mode (GODEBUG=fips140=only) it is the zero key.
func (s Secret) HistoryKey() HistoryKey {
	block, err := aes.NewCipher(s.Derive(historyKeyVersion, []byte("history"))[:16])
	if err != nil {
		return HistoryKey{}
	}
	tags, err := cipher.NewGCM(block)
	if err != nil {
		return HistoryKey{}
	}
	return HistoryKey{tags}
}

// String hides the key from logs and from the %v and %s verbs.
func (HistoryKey) String() string { return "[history key]" }

// GoString hides the key from the %#v verb.
func (HistoryKey) GoString() string { return "[history key]" }

// tagging reports whether a string of n bytes is taken in by its tag. It depends on what the string stands for and on nothing else.
func (k HistoryKey) tagging(n int) bool { return k.tags != nil && n >= longString }

// appendTag appends the encoding of a long string, which must not be in what out has room for.
func (k HistoryKey) appendTag(out, text []byte) []byte {
	out = append(out, tagLong)
	out = binary.BigEndian.AppendUint64(out, uint64(len(text)))
	return k.tags.Seal(out, historyNonce, nil, text)
}

// historyNonce is the nonce of all tags.
//
//nolint:gochecknoglobals // immutable
var historyNonce = make([]byte, 12)

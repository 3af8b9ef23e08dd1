package convcache

import (
	"crypto/aes"
	"crypto/cipher"
	"encoding/binary"
)

// historyKeyVersion opens the input from which the history key is made; see Secret.Derive.
const historyKeyVersion byte = 6

// longString is the length in bytes from which on a string enters a digest by its length and tag. A tag costs as much
// as the SHA-256 of some 300 bytes, and then a seventh of it per byte: 256 KiB take 26 µs instead of 184.
const longString = 512

// HistoryKey keys the tags by which long strings enter digests of histories. A tag is the 128-bit GMAC of the string
// (NIST SP 800-38D), with one nonce for all. To repeat a nonce reveals the key to somebody who sees two tags, but
// nobody does: they are hashed by SHA-256 and dropped. Without a view of tags, two chosen strings of n bytes have the
// same tag with a probability of at most n/2^132, less than 2^-100 for all that a body may have.
//
// The zero HistoryKey uses no tags, which proves as much and costs more. It prints as "[history key]".
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

// tagging reports whether a string of n bytes enters by its tag. That depends on its decoded length only.
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

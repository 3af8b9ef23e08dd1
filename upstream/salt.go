package upstream

import (
	"crypto/sha256"
	"encoding/base64"
	"strings"
	"unicode/utf8"
)

// maxSalt is how many characters engines take in a cache_salt (validate_cache_salt in generate/base/protocol.py of vLLM 0.32 and 0.33).
const maxSalt = 128

// Salted puts a text of our own, of at most 80 characters, in front of a request's cache_salt. Where that would be longer than engines take, the
// SHA-256 of the salt stands for it: equal salts stay equal on all replicas, different ones different, and only who knows a salt can tell its
// hash. A salt that engines refuse stays as it is, so that they refuse the leg too.
func Salted(prefix, salt string) string {
	if n := utf8.RuneCountInString(salt); n <= maxSalt && utf8.RuneCountInString(prefix)+n > maxSalt && !strings.ContainsAny(salt, "@/\\\x00") {
		sum := sha256.Sum256([]byte(salt))
		salt = base64.RawURLEncoding.EncodeToString(sum[:])
	}
	return prefix + salt
}

package convcache

import (
	"bytes"
	"crypto/rand"
	"fmt"
)

// minSecret is the shortest secret accepted: 128 bits, below which guessing offline is conceivable.
const minSecret = 16

// Secret keys everything that leaves the process or names a conversation. Make it with NewSecret or
// RandomSecret; the zero Secret keys nothing. It prints as "[secret]".
type Secret struct {
	key []byte
}

// NewSecret returns a secret made of the given bytes, which it copies. Fewer than 16 are an error.
func NewSecret(key []byte) (Secret, error) {
	if len(key) < minSecret {
		return Secret{}, fmt.Errorf("read secret: %d bytes, need at least %d", len(key), minSecret)
	}
	return Secret{key: bytes.Clone(key)}, nil
}

// RandomSecret returns a fresh 256-bit secret, good for one process: conversations keyed by it are
// unknown to other replicas and after a restart.
func RandomSecret() (Secret, error) {
	key := make([]byte, 32)
	if _, err := rand.Read(key); err != nil {
		return Secret{}, fmt.Errorf("make secret: %w", err)
	}
	return NewSecret(key)
}

// String hides the secret from logs and from the %v and %s verbs.
func (Secret) String() string { return "[secret]" }

// GoString hides the secret from the %#v verb.
func (Secret) GoString() string { return "[secret]" }

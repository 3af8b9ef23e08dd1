package convcache

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash"
	"strconv"
	"sync"
)

// minSecret is 128 bits; a shorter secret could be guessed offline.
const minSecret = 16

// Secret keys everything that leaves the process or names a conversation. NewSecret and RandomSecret make one; the zero Secret keys
// nothing. It prints as "[secret]".
type Secret struct {
	key  []byte
	macs *sync.Pool // of *mac
}

// mac is reused: a new HMAC costs as much as hashing a conversation's identity, and six allocations.
type mac struct {
	hash.Hash
	in []byte // the input, and its buffer
}

// maxMAC bounds the buffer that is kept: clients choose the names of models and tenants.
const maxMAC = 4 << 10

// hashed returns HMAC-SHA256 of a version byte and the fields. The length before each field keeps different lists apart.
func (s Secret) hashed(version byte, fields ...string) (sum [sha256.Size]byte) {
	var m *mac
	if s.macs != nil {
		m, _ = s.macs.Get().(*mac)
	}
	if m == nil {
		m = &mac{Hash: hmac.New(sha256.New, s.key)}
	}
	m.in = append(m.in[:0], version)
	for _, field := range fields {
		m.in = append(binary.BigEndian.AppendUint64(m.in, uint64(len(field))), field...)
	}
	m.Reset()
	m.Write(m.in)
	m.in = m.Sum(m.in[:0])
	copy(sum[:], m.in)
	if s.macs != nil && cap(m.in) <= maxMAC {
		s.macs.Put(m)
	}
	return sum
}

// NewSecret copies the key. Fewer than 16 bytes are an error.
func NewSecret(key []byte) (Secret, error) {
	if len(key) < minSecret {
		return Secret{}, fmt.Errorf("read secret: %d bytes, need at least %d", len(key), minSecret)
	}
	return Secret{key: bytes.Clone(key), macs: &sync.Pool{}}, nil
}

// RandomSecret returns a new 256-bit secret. Other replicas, and this one after a restart, do not know its conversations.
func RandomSecret() (Secret, error) {
	key := make([]byte, 32)
	rand.Read(key) // since Go 1.24 it fills the slice or ends the process
	return NewSecret(key)
}

// String hides the secret from %v and %s.
func (Secret) String() string { return "[secret]" }

// GoString hides the secret from %#v.
func (Secret) GoString() string { return "[secret]" }

// IsZero reports whether it is the zero Secret.
func (s Secret) IsZero() bool { return len(s.key) == 0 }

// Derive returns HMAC-SHA256 of a version byte and a text. Every use has its own version, so that no use reveals the key of another: 1 for
// conversations, 2 for salts, 3 for chains, 4 and 5 in package redisstore, 6 for outlines, 7 for salts of epochs, 8 for clients in logs, 9
// for conversations without an id, 10 for clients' ids, 11 for conversations of one id.
func (s Secret) Derive(version byte, text []byte) []byte {
	mac := hmac.New(sha256.New, s.key)
	mac.Write([]byte{version})
	mac.Write(text)
	return mac.Sum(nil)
}

// saltVersion differs from conversationVersion, so that a salt, which engines see, is never a conversation's key.
const saltVersion byte = 2

const epochVersion byte = 7

// Salt returns a cache_salt for the requests of one tenant with one salt of their own. Tenants then share no prefix cache of an engine, and
// cannot find out by timing whether another tenant sent a prompt.
func (s Secret) Salt(tenant, clientSalt string) string {
	sum := s.hashed(saltVersion, tenant, clientSalt)
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// EpochSalt returns the prefix of the cache_salt that all replicas use in an epoch.
func (s Secret) EpochSalt(epoch int64) string {
	sum := s.hashed(epochVersion, strconv.FormatInt(epoch, 10))
	return "quarantine-" + base64.RawURLEncoding.EncodeToString(sum[:16]) + "~"
}

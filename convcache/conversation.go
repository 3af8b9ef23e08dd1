package convcache

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
)

// conversationVersion changes with the fields or their order, so that old keys are not found instead of being misread.
const conversationVersion byte = 1

// Identity distinguishes conversations. The client chooses the id; the other fields keep equal ids apart where their KV must never meet.
type Identity struct {
	Tenant    string
	Model     string
	CacheSalt string
	SubAgent  string
	ID        string
}

// Key names a conversation in a store. It reveals nothing of the identity behind it.
type Key [sha256.Size]byte

// MaxKeys bounds the keys of one look-up, and so what a turn reads, and how long one step of a store takes.
const MaxKeys = 4

// Bounded returns the first MaxKeys keys.
func Bounded(keys []Key) []Key { return keys[:min(len(keys), MaxKeys)] }

// Conversation returns the key of an identity.
func (s Secret) Conversation(id Identity) Key {
	return s.hashed(conversationVersion, id.Tenant, id.Model, id.CacheSalt, id.SubAgent, id.ID)
}

// contentVersion differs from conversationVersion, so that no id of a client gives such a key.
const contentVersion byte = 9

// Content is everything that names a conversation without an id. Sub-agents need no field: they begin with texts of their own.
type Content struct {
	Tenant    string
	Model     string
	CacheSalt string
	Hash      uint64 // of the user's texts
}

// ByContent returns the key of a conversation without an id. Two conversations of one scope share it if their users' texts, or by chance
// the hashes, are equal; two tenants never share one.
func (s Secret) ByContent(c Content) Key {
	return s.hashed(contentVersion, c.Tenant, c.Model, c.CacheSalt, string(binary.BigEndian.AppendUint64(nil, c.Hash)))
}

const narrowedVersion byte = 11

// Narrowed returns a key for the conversations of one id that begin with the same text of the user, by its hash. Clients send one id for
// many conversations.
func (s Secret) Narrowed(id Key, first uint64) Key {
	return s.hashed(narrowedVersion, string(id[:]), string(binary.BigEndian.AppendUint64(nil, first)))
}

// String returns the first 16 bytes as 22 characters of unpadded base64url, for store keys.
func (k Key) String() string { return base64.RawURLEncoding.EncodeToString(k[:16]) }

// shortBytes gives 48 bits. Two of 65,536 conversations share such a name with a probability of 1 in 130,000; with 32 bits it would be 0.4,
// and a page would show their turns as one conversation.
const shortBytes = 6

// Short returns the first 12 hex characters, for logs and operators: enough to follow a conversation, too few to look it up.
func (k Key) Short() string { return hex.EncodeToString(k[:shortBytes]) }

// Named reports whether Short returns short, without an allocation: an operator's question compares every ticket.
func (k Key) Named(short string) bool {
	var name [2 * shortBytes]byte
	hex.Encode(name[:], k[:shortBytes])
	return string(name[:]) == short
}

const clientIDVersion byte = 10

// ClientID is the keyed hash of a client's id for its conversation. It finds the id's turns again, and reveals no id without the secret. It
// is equal for all tenants and models, and no key of a store. Zero means no id.
type ClientID [8]byte

// ClientID returns the keyed hash of an id.
func (s Secret) ClientID(id string) (hash ClientID) {
	sum := s.hashed(clientIDVersion, id)
	copy(hash[:], sum[:])
	return hash
}

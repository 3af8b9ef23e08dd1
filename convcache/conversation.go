package convcache

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
)

// conversationVersion begins the input of every conversation key. A change of the fields or their order needs another
// version, so that old keys are not found instead of being misread.
const conversationVersion byte = 1

// Identity is everything that distinguishes one conversation from another. The client chooses the id; the other fields
// keep equal ids apart where their KV must never meet.
type Identity struct {
	Tenant    string
	Model     string
	CacheSalt string
	SubAgent  string
	ID        string
}

// Key names a conversation in a store. It reveals nothing of the identity that it was made from.
type Key [sha256.Size]byte

// MaxKeys is how many keys one look-up may ask for. A look-up reads at most as many branches of each key as a
// conversation keeps, so that this bounds what a turn reads of a store, and what the store does for it in one step.
const MaxKeys = 4

// Bounded returns the keys that a look-up asks for: the first MaxKeys.
func Bounded(keys []Key) []Key { return keys[:min(len(keys), MaxKeys)] }

// Conversation returns the key of the identity.
func (s Secret) Conversation(id Identity) Key {
	return s.hashed(conversationVersion, id.Tenant, id.Model, id.CacheSalt, id.SubAgent, id.ID)
}

// contentVersion begins the input of every key of a conversation without an id. It differs from conversationVersion, so that no id that a
// client chooses gives such a key.
const contentVersion byte = 9

// Content is everything that names a conversation without an id. No sub-agent is in it: the children of an agent begin with texts of their
// own.
type Content struct {
	Tenant    string
	Model     string
	CacheSalt string
	Hash      uint64 // of what the user has written
}

// ByContent returns a key of a conversation without an id. Two conversations of one scope share it if their users have written the same, or
// if the hashes happen to be equal; those of two tenants never share it.
func (s Secret) ByContent(c Content) Key {
	return s.hashed(contentVersion, c.Tenant, c.Model, c.CacheSalt, string(binary.BigEndian.AppendUint64(nil, c.Hash)))
}

// narrowedVersion begins the input of the keys under which conversations of one id are told apart.
const narrowedVersion byte = 11

// Narrowed returns the key of a conversation with an id whose user has begun with what the hash is of. Clients send one id for many
// conversations.
func (s Secret) Narrowed(id Key, first uint64) Key {
	return s.hashed(narrowedVersion, string(id[:]), string(binary.BigEndian.AppendUint64(nil, first)))
}

// String returns the first 16 bytes in 22 characters of unpadded base64url, for store keys.
func (k Key) String() string { return base64.RawURLEncoding.EncodeToString(k[:16]) }

// shortBytes is how much of a key names a conversation to operators: 48 bits. With 32, the probability that two of
// 65,536 conversations share a name is 0.4, and a page would show their turns as one conversation's; with 48 it is 1
// in 130,000.
const shortBytes = 6

// Short returns the first 12 hex characters, for logs and operators: enough to follow a conversation, too few to look it up.
func (k Key) Short() string { return hex.EncodeToString(k[:shortBytes]) }

// Named reports whether Short returns short. It does not allocate, because an operator's question is compared with
// every ticket.
func (k Key) Named(short string) bool {
	var name [2 * shortBytes]byte
	hex.Encode(name[:], k[:shortBytes])
	return string(name[:]) == short
}

// clientIDVersion begins the input of the keyed hash of a client's id.
const clientIDVersion byte = 10

// ClientID is the keyed hash of an id by which a client names its conversation: enough to find the id's turns again, too little to
// guess the id without the secret. It is equal for all tenants and models, and is the key of nothing. The zero value stands for no id.
type ClientID [8]byte

// ClientID returns the keyed hash of an id.
func (s Secret) ClientID(id string) (hash ClientID) {
	sum := s.hashed(clientIDVersion, id)
	copy(hash[:], sum[:])
	return hash
}

package convcache

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
)

// saltVersion opens the input of every salt. It differs from conversationVersion, so that a salt,
// which engines see, is never a conversation's key.
const saltVersion byte = 2

// Salt returns a cache_salt that is the same for all requests of a tenant that carry the same salt of
// their own, and different for all other requests: engines then share no prefix cache between tenants,
// and cannot be asked by timing whether another tenant has sent a prompt.
func (s Secret) Salt(tenant, clientSalt string) string {
	mac := hmac.New(sha256.New, s.key)
	mac.Write([]byte{saltVersion})
	for _, field := range [...]string{tenant, clientSalt} {
		mac.Write(binary.BigEndian.AppendUint64(nil, uint64(len(field))))
		mac.Write([]byte(field))
	}
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

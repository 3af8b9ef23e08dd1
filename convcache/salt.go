package convcache

import "encoding/base64"

// saltVersion opens the input of every salt. It differs from conversationVersion, so that a salt,
// which engines see, is never a conversation's key.
const saltVersion byte = 2

// Salt returns a cache_salt that is the same for all requests of a tenant that carry the same salt of
// their own, and different for all other requests: engines then share no prefix cache between tenants,
// and cannot be asked by timing whether another tenant has sent a prompt.
func (s Secret) Salt(tenant, clientSalt string) string {
	sum := s.hashed(saltVersion, tenant, clientSalt)
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

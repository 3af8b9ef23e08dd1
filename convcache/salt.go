package convcache

import (
	"encoding/base64"
	"strconv"
)

// saltVersion opens the input of every salt. It differs from conversationVersion, so that a salt,
// which engines see, is never a conversation's key.
const saltVersion byte = 2

// epochVersion opens the input of every epoch's salt.
const epochVersion byte = 7

// Salt returns a cache_salt that is the same for all requests of a tenant that carry the same salt of
// their own, and different for all other requests: engines then share no prefix cache between tenants,
// and cannot be asked by timing whether another tenant has sent a prompt.
func (s Secret) Salt(tenant, clientSalt string) string {
	sum := s.hashed(saltVersion, tenant, clientSalt)
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// EpochSalt returns the beginning of the cache_salt that all replicas use in an epoch of the fleet.
func (s Secret) EpochSalt(epoch int64) string {
	sum := s.hashed(epochVersion, strconv.FormatInt(epoch, 10))
	return "quarantine-" + base64.RawURLEncoding.EncodeToString(sum[:16]) + "~"
}

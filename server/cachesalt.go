package server

import (
	"carryover/server/lineage"
)

// ownSalt returns the cache_salt that the legs of a request have without a quarantine, "" for none.
func (a *attempt) ownSalt() string {
	if a.Request.TenantSalt != "" {
		return a.Request.TenantSalt
	}
	salt, _ := a.Body.String("cache_salt")
	return salt
}

// cacheSalt is the cache_salt of a leg that finds a cache so, "" where the request's is to stay. One that engines would refuse stays.
func (a *attempt) cacheSalt(found lineage.Space) string {
	switch {
	case a.pair.Salt != "":
		return a.pair.Salt
	case found.Salt() == "":
		return a.Request.TenantSalt
	}
	if a.Request.TenantSalt == "" {
		if raw, present := a.Body.Member("cache_salt"); present && string(raw) != "null" {
			if own, ok := a.Body.String("cache_salt"); !ok || own == "" {
				return ""
			}
		}
	}
	return found.Salt() + a.ownSalt()
}

package server

import (
	"carryover/server/lineage"
	"carryover/server/pick"
)

// ownSalt returns the cache_salt that the legs of a request have without a quarantine, "" for none.
func (t *turn) ownSalt() string {
	if t.TenantSalt != "" {
		return t.TenantSalt
	}
	salt, _ := t.body.String("cache_salt")
	return salt
}

// cacheSalt is the cache_salt of a leg that finds a cache so, "" where the request's is to stay. One that engines would refuse stays.
func (t *turn) cacheSalt(p *pick.Pair, found lineage.Space) string {
	switch {
	case p.Salt != "":
		return p.Salt
	case found.Salt() == "":
		return t.TenantSalt
	}
	if t.TenantSalt == "" {
		if raw, present := t.body.Member("cache_salt"); present && string(raw) != "null" {
			if own, ok := t.body.String("cache_salt"); !ok || own == "" {
				return ""
			}
		}
	}
	return found.Salt() + t.ownSalt()
}

package turn

import (
	"carryover/server/answer"
	"carryover/sse/rawjson"
	"carryover/upstream"
	"carryover/upstream/body"
	"carryover/upstream/fleet"
)

// leg makes a leg that sends a body to an engine.
func (a *attempt) leg(to *fleet.Incarnation, plan upstream.LegPlan, body rawjson.Pieces) upstream.Leg {
	return upstream.Leg{
		Instance: to.Engine().Instance(), API: plan.API, Body: body, RequestID: a.legID, Rank: plan.Rank,
		Authorization: a.Request.Authorization,
	}
}

// answerID returns the id that the answers to the attempt's legs must have, "" for APIs whose engines take it from X-Request-Id.
func (a *attempt) answerID() string {
	if a.Request.API != body.Responses {
		return ""
	}
	return answer.ResponseID(a.legID)
}

// ownSalt returns the cache_salt that the legs of a request have without a quarantine, "" for none.
func (a *attempt) ownSalt() string {
	if a.Request.TenantSalt != "" {
		return a.Request.TenantSalt
	}
	salt, _ := a.Body.String("cache_salt")
	return salt
}

// cacheSalt is the cache_salt of the legs of an attempt whose answer decode makes, "" where the request's is to stay. One that engines would
// refuse stays.
func (a *attempt) cacheSalt(decode *fleet.Incarnation) string {
	if a.pair.Salt != "" {
		return a.pair.Salt
	}
	salt := a.deps.Epoch.Salt(a.epoch, a.pair.Prefill, decode)
	if salt == "" {
		return a.Request.TenantSalt
	}
	if a.Request.TenantSalt == "" {
		if raw, present := a.Body.Member("cache_salt"); present && string(raw) != "null" {
			if own, ok := a.Body.String("cache_salt"); !ok || own == "" {
				return ""
			}
		}
	}
	return upstream.Salted(salt, a.ownSalt())
}

package server

import (
	"cmp"
	"context"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"carryover/convcache"
	"carryover/server/lineage"
	"carryover/server/record"
	"carryover/upstream/fleet"
)

// lineages records out of which incarnations' prefix caches KV may have come. It translates between the fleet and package lineage.
type lineages struct {
	records *lineage.Records
	changed chan struct{} // holds at most one value, which says that more KV is in doubt than before
	changes atomic.Int64  // how often more KV came into doubt
}

func newLineages(secret convcache.Secret) *lineages {
	l := &lineages{changed: make(chan struct{}, 1)}
	l.records = lineage.New(func(p lineage.Address, incarnation string) convcache.Incarnation {
		return secret.Incarnation(incarnationName(p, incarnation))
	}, l.hurry)
	return l
}

// hurry wakes the exposure watch, which gives up the KV in doubt and tells the other replicas.
func (l *lineages) hurry() {
	l.changes.Add(1)
	select {
	case l.changed <- struct{}{}:
	default: // it will be woken already
	}
}

// incarnationName names an incarnation as all replicas do, however they spell its host: by its start time, its rank, and what of its address is
// no name. Starts alone are told in hundredths of a second, in which two engines may begin.
func incarnationName(p lineage.Address, incarnation string) string {
	name := incarnation + " " + behindHost(p.URL)
	if incarnation == "" { // nothing else distinguishes it from other incarnations
		name = " " + p.URL
	}
	if p.Ranked {
		name += "@" + strconv.Itoa(p.Rank)
	}
	return name
}

// behindHost returns the port and the path of a URL.
func behindHost(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		return address
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return ":" + port + strings.TrimRight(u.Path, "/")
}

// addressOf returns the address of an incarnation's engine.
func addressOf(incarnation *fleet.Incarnation) lineage.Address {
	engine := incarnation.Engine()
	return lineage.Address{URL: engine.BaseURL, Rank: engine.Rank, Ranked: engine.Ranked}
}

// at returns the state of an incarnation's cache that a leg will find.
func (l *lineages) at(incarnation *fleet.Incarnation) lineage.Space {
	return l.records.At(addressOf(incarnation), incarnation.ID())
}

// enter is at for a leg that brings KV into the cache, which it records. It returns false if that KV is in doubt.
func (l *lineages) enter(incarnation *fleet.Incarnation, kv convcache.Lineage) (lineage.Space, bool) {
	return l.records.Enter(addressOf(incarnation), incarnation.ID(), kv)
}

// leave is the lineage of what comes out of both caches of a turn, of which handed came out of prefill's.
func (l *lineages) leave(handed convcache.Lineage, decode lineage.Space) convcache.Lineage {
	kv := l.records.Leaves(decode)
	kv.Join(handed)
	kv.Bound()
	return kv
}

// inDoubt reports whether KV descends from an incarnation that is under quarantine.
func (l *lineages) inDoubt(kv convcache.Lineage) bool { return l.records.InDoubt(kv) }

// quarantined reports whether an incarnation of prefill is under quarantine, and tells the fleet if it is.
func (l *lineages) quarantined(prefill *fleet.Incarnation) bool {
	if !prefill.Known() || prefill.Quarantined() || !l.records.Quarantined(addressOf(prefill), prefill.ID()) {
		return prefill.Quarantined()
	}
	prefill.Quarantine()
	return true
}

// Exposed returns since when legs to an engine carry a quarantine's cache_salt, because its prefix cache has had KV that is in doubt. It
// returns false if they carry none.
func (s *Server) Exposed(engine *fleet.Engine) (since time.Time, exposed bool) {
	last := engine.Last()
	if !last.Known() {
		return since, false
	}
	return s.turns.lineages.records.Exposed(addressOf(last), last.ID())
}

// ownSalt returns the cache_salt that the legs of a request have without a quarantine, "" for none.
func (t *turn) ownSalt() string {
	if t.salt != "" {
		return t.salt
	}
	salt, _ := t.req.String("cache_salt")
	return salt
}

// cacheSalt is the cache_salt of a leg that finds a cache so, "" where the request's is to stay. One that engines would refuse stays.
func (t *turn) cacheSalt(p *pair, found lineage.Space) string {
	switch {
	case p.salt != "":
		return p.salt
	case found.Salt() == "":
		return t.salt
	}
	if t.salt == "" {
		if raw, present := t.req.Member("cache_salt"); present && string(raw) != "null" {
			if own, ok := t.req.String("cache_salt"); !ok || own == "" {
				return ""
			}
		}
	}
	return found.Salt() + t.ownSalt()
}

// dropInDoubt gives up the branches that descend from a quarantined incarnation. Decode frees the blocks of tickets, and notes are forgotten.
func (f *finder) dropInDoubt(ctx context.Context, t *turn) {
	t.branches = f.withoutDoubt(ctx, t, t.branches)
	t.notes = f.withoutDoubt(ctx, t, t.notes)
}

func (f *finder) withoutDoubt(ctx context.Context, t *turn, branches []convcache.Branch) (usable []convcache.Branch) {
	bad := 0
	for i := range branches {
		if f.lineages.inDoubt(branches[i].Lineage) {
			bad++
		}
	}
	if bad == 0 {
		return branches
	}
	t.dropped = cmp.Or(t.dropped, record.ReasonQuarantined)
	for _, b := range branches {
		switch {
		case !f.lineages.inDoubt(b.Lineage):
			usable = append(usable, b)
		case !f.dryRun:
			f.giveUp(ctx, t, b.ID)
		}
	}
	return usable
}

// giveUp takes a branch that no turn may use out of the store, and has its blocks released if it is a ticket.
func (f *finder) giveUp(ctx context.Context, t *turn, id convcache.TicketID) {
	ticket, outcome := f.deps.Store.Take(ctx, t.conversation.key, id)
	f.ledger.gone(id, outcome)
	if outcome == convcache.Taken && !ticket.HandedBack() {
		f.releaser.unuse(ticket, t.model)
	}
}

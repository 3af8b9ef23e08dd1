package quarantine

import (
	"errors"
	"log/slog"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"carryover/convcache"
	"carryover/server/lineage"
	"carryover/server/proof"
	"carryover/upstream/fleet"
)

// ErrInDoubt says that a ticket's KV may come from an incarnation that is under quarantine.
var ErrInDoubt = errors.New("the KV may come from a prefill instance that is under quarantine")

// Lineages records out of which incarnations' prefix caches KV may have come. It translates between the fleet and package lineage. It is
// safe for concurrent use.
type Lineages struct {
	records *lineage.Records
	logger  *slog.Logger
	tell    func(sentence string)
	changed chan struct{} // holds at most one value, which says that more KV is in doubt than before
	changes atomic.Int64  // how often more KV came into doubt
	caught  atomic.Uint64 // see Caught
}

// NewLineages returns lineages that name incarnations under the secret that replicas share. tell is told of a quarantine as one sentence; nil
// for nobody.
func NewLineages(secret convcache.Secret, logger *slog.Logger, tell func(sentence string)) *Lineages {
	if tell == nil {
		tell = func(string) {}
	}
	l := &Lineages{logger: logger, tell: tell, changed: make(chan struct{}, 1)}
	l.records = lineage.New(func(p lineage.Address, incarnation string) convcache.Incarnation {
		return secret.Incarnation(incarnationName(p, incarnation))
	}, l.hurry)
	return l
}

// hurry wakes the exposure watch, which gives up the KV in doubt and tells the other replicas.
func (l *Lineages) hurry() {
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

// At returns the state of an incarnation's cache that a leg will find.
func (l *Lineages) At(incarnation *fleet.Incarnation) lineage.Space {
	return l.records.At(addressOf(incarnation), incarnation.ID())
}

// Enter is At for a leg that brings KV into the cache, which it records. It returns false if that KV is in doubt.
func (l *Lineages) Enter(incarnation *fleet.Incarnation, kv convcache.Lineage) (lineage.Space, bool) {
	return l.records.Enter(addressOf(incarnation), incarnation.ID(), kv)
}

// Of returns the lineage of what comes out of a cache.
func (l *Lineages) Of(found lineage.Space) convcache.Lineage { return l.records.Leaves(found) }

// Leave is the lineage of what comes out of both caches of a turn, of which handed came out of prefill's.
func (l *Lineages) Leave(handed convcache.Lineage, decode lineage.Space) convcache.Lineage {
	kv := l.records.Leaves(decode)
	kv.Join(handed)
	kv.Bound()
	return kv
}

// InDoubt reports whether KV descends from an incarnation that is under quarantine.
func (l *Lineages) InDoubt(kv convcache.Lineage) bool { return l.records.InDoubt(kv) }

// Quarantined reports whether an incarnation of prefill is under quarantine, and tells the fleet if it is.
func (l *Lineages) Quarantined(prefill *fleet.Incarnation) bool {
	if !prefill.Known() || prefill.Quarantined() || !l.records.Quarantined(addressOf(prefill), prefill.ID()) {
		return prefill.Quarantined()
	}
	prefill.Quarantine()
	return true
}

// Quarantine puts an incarnation of prefill under quarantine, with all that has come out of its cache.
func (l *Lineages) Quarantine(prefill *fleet.Incarnation) {
	prefill.Quarantine()
	l.records.Quarantine(addressOf(prefill), prefill.ID())
}

// Good records that the answer to a leg, which found a cache so, repeated the ids that the leg sent.
func (l *Lineages) Good(found lineage.Space) { l.records.Good(found) }

// Caught records that the answer to a leg, which found a cache so, repeated other ids than the leg sent: the incarnation of prefill is
// quarantined until it is restarted. Other replicas learn of it within a second, or when Redis answers again. turn names the turn in the
// log.
func (l *Lineages) Caught(prefill *fleet.Incarnation, found lineage.Space, turn string) {
	l.records.Bad(found) // before others can see the quarantine, which does not say when the fault began
	prefill.Quarantine()
	l.logger.Error("prefill is quarantined until it is restarted", "turn", turn, "prefill", prefill.Engine().Name,
		"incarnation", prefill.ID(), "error", proof.ErrIDs)
	l.tell("Prefill " + prefill.Engine().Name + " is quarantined until it is restarted: it computed other ids than it was sent.")
	l.caught.Add(1)
}

// Count returns how many answers Caught was told of.
func (l *Lineages) Count() uint64 { return l.caught.Load() }

// Exposed returns since when legs to an engine carry a quarantine's cache_salt, because its prefix cache has had KV that is in doubt. It
// returns false if they carry none.
func (l *Lineages) Exposed(engine *fleet.Engine) (since time.Time, exposed bool) {
	last := engine.Last()
	if !last.Known() {
		return since, false
	}
	return l.records.Exposed(addressOf(last), last.ID())
}

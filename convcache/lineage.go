package convcache

import (
	"cmp"
	"encoding/binary"
	"slices"
)

// incarnationVersion opens the input of every incarnation's name.
const incarnationVersion byte = 7

// Incarnation names one incarnation of an engine: a keyed hash, so that Redis tells no addresses. Replicas of one secret name alike.
type Incarnation uint64

// Incarnation returns the name of an incarnation. name tells it from every other.
func (s Secret) Incarnation(name string) Incarnation {
	sum := s.hashed(incarnationVersion, name)
	return Incarnation(binary.BigEndian.Uint64(sum[:8]))
}

// Ancestor is a prefix cache out of which KV has come.
type Ancestor struct {
	Incarnation Incarnation
	// Space tells the cache that an incarnation uses under one salt of a quarantine from the one that it uses under another; 0 is
	// the one without such a salt.
	Space uint64
	// Until is the last moment at which KV may have been read there, in nanoseconds since 1970.
	Until int64
}

// MaxAncestors is how many ancestors the lineage of a ticket names. In Redis each takes 24 bytes.
const MaxAncestors = 32

// maxNamed is how many ancestors a lineage names at all.
const maxNamed = 1024

// Lineage says out of which prefix caches the KV of some blocks may have come: of the incarnation of prefill that computed or read it, of
// the incarnation of decode, and of all those that these have had KV of before. The zero Lineage says that this is not known.
type Lineage struct {
	// Ancestors are in the order of their names. A slice that others have is never changed.
	Ancestors []Ancestor
	// Others is the last moment at which KV may have come out of a cache that is not named, because there were too many; 0 if there
	// is none.
	Others int64
}

// Unknown reports whether it is not known where the KV has come from.
func (l *Lineage) Unknown() bool { return len(l.Ancestors) == 0 && l.Others == 0 }

// Clone returns a copy that shares nothing with l, with room for one ancestor more.
func (l *Lineage) Clone() Lineage {
	return Lineage{Ancestors: append(make([]Ancestor, 0, len(l.Ancestors)+1), l.Ancestors...), Others: l.Others}
}

// Join adds the ancestors of other to l, whose slice is the caller's own.
func (l *Lineage) Join(other Lineage) {
	l.Others = max(l.Others, other.Others)
	for _, a := range other.Ancestors {
		l.Add(a)
	}
}

// Bound leaves as many ancestors named as a ticket may name. Those of which KV was read longest ago are named no more, and count among
// Others.
func (l *Lineage) Bound() {
	for len(l.Ancestors) > MaxAncestors {
		l.forgetOldest()
	}
}

// Add adds one ancestor, as Join does.
func (l *Lineage) Add(a Ancestor) {
	at, found := slices.BinarySearchFunc(l.Ancestors, a, compareAncestors)
	if found {
		l.Ancestors[at].Until = max(l.Ancestors[at].Until, a.Until)
		return
	}
	if l.Ancestors = slices.Insert(l.Ancestors, at, a); len(l.Ancestors) > maxNamed {
		l.forgetOldest()
	}
}

func (l *Lineage) forgetOldest() {
	oldest := 0
	for i := range l.Ancestors {
		if l.Ancestors[i].Until < l.Ancestors[oldest].Until {
			oldest = i
		}
	}
	l.Others = max(l.Others, l.Ancestors[oldest].Until)
	l.Ancestors = slices.Delete(l.Ancestors, oldest, oldest+1)
}

func compareAncestors(a, b Ancestor) int {
	return cmp.Or(cmp.Compare(a.Incarnation, b.Incarnation), cmp.Compare(a.Space, b.Space))
}

// Quarantine says which KV is in doubt, because an incarnation of prefill computed other ids than it was sent.
type Quarantine struct {
	Incarnation Incarnation
	// Exposed says that the incarnation did nothing wrong, and has had KV that is in doubt: what comes out of its cache under Space
	// is in doubt, too. Of others everything is.
	Exposed bool
	Space   uint64
	// Since is the moment from which what came out of the cache is in doubt, in nanoseconds since 1970; 0 is from the beginning.
	Since int64
}

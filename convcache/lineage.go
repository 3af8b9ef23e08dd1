package convcache

import (
	"cmp"
	"encoding/binary"
	"slices"
)

// incarnationVersion begins the input of every incarnation's name.
const incarnationVersion byte = 7

// Incarnation names one incarnation of an engine by a keyed hash, so that Redis reveals no addresses. Replicas with the
// same secret use the same names.
type Incarnation uint64

// Incarnation returns the name of an incarnation. name must differ from that of every other incarnation.
func (s Secret) Incarnation(name string) Incarnation {
	sum := s.hashed(incarnationVersion, name)
	return Incarnation(binary.BigEndian.Uint64(sum[:8]))
}

// Ancestor is a prefix cache that KV has come from.
type Ancestor struct {
	Incarnation Incarnation
	// Space distinguishes the parts of an incarnation's cache that were used under different salts of a quarantine; 0
	// is the part without such a salt.
	Space uint64
	// Until is the last moment at which KV may have been read from it, in nanoseconds since 1970.
	Until int64
}

// MaxAncestors is how many ancestors a ticket's lineage names. Each takes 24 bytes in Redis.
const MaxAncestors = 32

// maxNamed is how many ancestors a lineage names at all.
const maxNamed = 1024

// Lineage says which prefix caches the KV of some blocks may have come from: the cache of the prefill incarnation that
// computed or read it, the cache of the decode incarnation, and all caches whose KV had reached these two before. The
// zero Lineage means that this is not known.
type Lineage struct {
	// Ancestors are sorted by name. A shared slice is never changed.
	Ancestors []Ancestor
	// Others is the last moment at which KV may have come from a cache that Ancestors does not name, because there were
	// too many; 0 if there is none.
	Others int64
}

// Unknown reports whether it is not known where the KV came from.
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

// Bound keeps as many named ancestors as a ticket may name. It drops those that were read longest ago, and counts them
// in Others.
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

// Quarantine says which KV is in doubt because a prefill incarnation has computed other ids than it was sent.
type Quarantine struct {
	Incarnation Incarnation
	// Exposed says that the incarnation itself made no mistake but has held KV that is in doubt: then only KV from its
	// cache under Space is in doubt. Otherwise all KV of the incarnation is.
	Exposed bool
	Space   uint64
	// Since is the moment from which on KV from the cache is in doubt, in nanoseconds since 1970; 0 means from the
	// beginning.
	Since int64
}

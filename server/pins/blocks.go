package pins

import (
	"hash/maphash"
	"sync"
	"time"

	"carryover/upstream"
)

// blocks remembers which requests' blocks have a ticket. An answer leaves one ticket, which is stored, on a leg, or waits for its release. A
// second ticket for the same blocks would be used or released after the first, when decode has given the blocks to another request. This
// can only happen if an answer is stored twice, or if an engine gives two requests one name. Whichever of the two comes second is dropped.
//
// It remembers for as long as a ticket may live, or the last maxBlocks answers, in two generations. The older generation is forgotten as a
// whole. Names are kept as 64-bit hashes; a collision costs a ticket.
type blocks struct {
	seed maphash.Seed
	life time.Duration // of a generation
	now  func() time.Time

	mu    sync.Mutex      // guards what follows
	young map[uint64]bool // whether they are used or about to be released
	old   map[uint64]bool
	since time.Time // when young began
}

// maxBlocks bounds a generation: 3 MB.
const maxBlocks = 1 << 16

// newBlocks remembers blocks for as long as a ticket lives, and for the margin in which a leg may still read them.
func newBlocks(ttl time.Duration) *blocks {
	return &blocks{seed: maphash.MakeSeed(), life: ttl + marginWithoutExpiry, now: time.Now, young: map[uint64]bool{}}
}

// fresh notes that the blocks of an answer have a ticket from now on, and reports false if they had one before.
func (b *blocks) fresh(decode string, parsed upstream.TicketParams) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	key := b.key(decode, parsed)
	if _, known := b.find(key); known {
		return false
	}
	b.put(key, false)
	return true
}

// unuse notes that blocks are about to be released, or that their ticket was sent. It reports false if that was noted before.
func (b *blocks) unuse(decode string, parsed upstream.TicketParams) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	key := b.key(decode, parsed)
	if unused, _ := b.find(key); unused {
		return false
	}
	b.put(key, true)
	return true
}

// find needs b.mu.
func (b *blocks) find(key uint64) (unused, known bool) {
	if unused, known = b.young[key]; !known {
		unused, known = b.old[key]
	}
	return unused, known
}

// put needs b.mu.
func (b *blocks) put(key uint64, unused bool) {
	if now := b.now(); len(b.young) >= maxBlocks || now.Sub(b.since) >= b.life {
		b.old, b.young, b.since = b.young, map[uint64]bool{}, now
	}
	b.young[key] = unused
}

func (b *blocks) key(decode string, parsed upstream.TicketParams) uint64 {
	var h maphash.Hash
	h.SetSeed(b.seed)
	for _, name := range []string{decode, parsed.EngineID, parsed.RequestID} {
		_, _ = h.WriteString(name) // never fails
		_ = h.WriteByte(0)         // in none of them
	}
	return h.Sum64()
}

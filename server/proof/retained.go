package proof

import (
	"encoding/binary"
	"slices"
	"sync"

	"carryover/convcache"
	"carryover/sse/rawjson"
)

// Arena bounds the memory of retained ids. It is safe for concurrent use.
type Arena struct {
	most int64

	mu   sync.Mutex // guards used
	used int64
}

// NewArena returns a bound of this many bytes.
func NewArena(bytes int64) *Arena { return &Arena{most: max(bytes, 0)} }

// Use returns how many bytes are in use, and how many there are at most. For a nil Arena both are 0.
func (r *Arena) Use() (used, most int64) {
	if r == nil {
		return 0, 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.used, r.most
}

// take counts more bytes, or fewer if the number is negative. It returns false, and counts nothing, if they exceed the bound.
func (r *Arena) take(bytes int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.used+int64(bytes) > r.most {
		return false
	}
	r.used += int64(bytes)
	return true
}

// Retained are the ids that a ticket covers, kept so that its KV can be handed back. Until Free their memory counts against an arena.
// A Retained belongs to one goroutine at a time.
type Retained struct {
	arena  *Arena
	ids    int
	packed []byte // the ids as unsigned varints, and perhaps one more
	full   bool   // the arena had no room for all ids, and none are kept
}

// Len returns the number of ids.
func (r *Retained) Len() int { return r.ids }

// unpacked returns the ids.
func (r *Retained) unpacked() []uint32 {
	ids, rest := make([]uint32, r.ids), r.packed
	for i := range ids {
		id, size := binary.Uvarint(rest)
		ids[i], rest = uint32(id), rest[size:]
	}
	return ids
}

// AppendList appends the ids as a JSON list, as vLLM writes it.
func (r *Retained) AppendList(dst []byte) []byte { return rawjson.AppendIDs(dst, r.unpacked()) }

// Are reports whether an engine's list has exactly these ids, however it spells them.
func (r *Retained) Are(list []byte) bool { return rawjson.EqualIDs(list, r.unpacked()) }

// Free gives the memory back. Afterwards only Free may be called, and does nothing.
func (r *Retained) Free() {
	if r != nil {
		r.arena.take(-cap(r.packed))
		r.ids, r.packed = 0, nil
	}
}

// add adds copies of ids. If the arena has no room for all of them, the ids added earlier are freed too: an incomplete list is useless.
func (r *Retained) add(ids []uint32) {
	if r == nil || r.full {
		return
	}
	before := cap(r.packed)
	r.packed = slices.Grow(r.packed, len(ids)*5/2) // ids of real vocabularies take 2.2 bytes on average
	for _, id := range ids {
		r.packed = binary.AppendUvarint(r.packed, uint64(id))
	}
	if grown := cap(r.packed) - before; grown > 0 && !r.arena.take(grown) {
		r.packed = r.packed[:0:before]
		r.Free()
		r.full = true
		return
	}
	r.ids += len(ids)
}

// Retain keeps the ids of the attempt from here on: those of the prompt now, because the turn will drop their memory, and those of the
// answer as they arrive. It must be called before anything of the answer is added; otherwise Retained hands nothing over, as with a nil
// arena. Ids retained earlier are given back.
func (k *IDs) Retain(arena *Arena) {
	k.Discard()
	if !k.Wanted() || arena == nil {
		return
	}
	k.retained = &Retained{arena: arena}
	k.retained.add(k.prompt.IDs)
}

// seal ends the chain after the given number of tokens. At this point the retained ids must be all ids of the chain, because later only the
// last one may be left out. If Retain was called too late, or the ids were freed too early, there are fewer, and they are discarded.
func (k *IDs) seal(tokens int) (convcache.Chain, bool) {
	if k.retained != nil && k.retained.ids != k.chain.Len() {
		k.Discard()
	}
	return k.chain.Chain(tokens)
}

// Retained hands over the ids that a ticket of this many tokens covers: all of them, or all but the last. It returns nil if they were not
// kept, if the arena had no room for all, or if Seal has not ended the chain with this many tokens. It is called once, after Seal. Discard
// gives back ids that were not handed over, and Free of the returned value those that were.
func (k *IDs) Retained(tokens int) *Retained {
	if k == nil || k.retained == nil || k.chain == nil {
		return nil
	}
	r := k.retained
	if tokens != k.chain.Len() || tokens != r.ids && tokens != r.ids-1 {
		return nil
	}
	k.retained = nil
	r.ids = tokens // a reader stops before the last one
	return r
}

// Discard gives back the memory of retained ids that were not handed over.
func (k *IDs) Discard() {
	if k != nil {
		k.retained.Free()
		k.retained = nil
	}
}

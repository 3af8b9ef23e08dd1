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

// NewArena returns an arena of this many bytes.
func NewArena(bytes int64) *Arena { return &Arena{most: max(bytes, 0)} }

// Use returns how many bytes are in use, and the bound. For a nil Arena both are 0.
func (r *Arena) Use() (used, most int64) {
	if r == nil {
		return 0, 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.used, r.most
}

// take counts bytes, a negative number for fewer. If they exceed the bound, it counts nothing and returns false.
func (r *Arena) take(bytes int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.used+int64(bytes) > r.most {
		return false
	}
	r.used += int64(bytes)
	return true
}

// Retained are the ids that a ticket covers, kept for its hand-back. An arena counts their memory until Free. Only one goroutine at a time uses them.
type Retained struct {
	arena  *Arena
	ids    int
	packed []byte // the ids as unsigned varints, and perhaps one more
	full   bool   // the arena had no room for all ids, so none are kept
}

// Len returns the number of ids.
func (r *Retained) Len() int { return r.ids }

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

// Free returns the memory. Afterwards only Free may be called, and does nothing.
func (r *Retained) Free() {
	if r != nil {
		r.arena.take(-cap(r.packed))
		r.ids, r.packed = 0, nil
	}
}

// Retain keeps copies of ids.
func (r *Arena) Retain(ids []uint32) *Retained {
	kept := &Retained{arena: r}
	kept.add(ids)
	return kept
}

// add adds copies of ids. If the arena has no room for them, all ids are freed: an incomplete list is useless.
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

// Retain keeps the ids of the attempt from here on: the prompt's now, because the turn will drop them, and the answer's as they arrive. It must be
// called before anything of the answer is added; else, or with a nil arena, nothing is kept. Earlier retained ids are discarded.
func (k *IDs) Retain(arena *Arena) {
	k.Discard()
	if !k.Wanted() || arena == nil {
		return
	}
	k.retained = arena.Retain(k.prompt.IDs)
}

// seal ends the chain after this many tokens. Retained ids must be all ids of the chain, because later only the last one may be left out. Fewer ids,
// of a late Retain or an early Free, are discarded.
func (k *IDs) seal(tokens int) (convcache.Chain, bool) {
	if k.retained != nil && k.retained.ids != k.chain.Len() {
		k.Discard()
	}
	return k.chain.Chain(tokens)
}

// Retained hands over the ids that a ticket of this many tokens covers: all ids, or all but the last. It returns nil if they were not kept, or if the
// chain was not sealed with this many tokens. It is called once, after Seal. The caller then has to Free them.
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

// Discard frees retained ids that were not handed over.
func (k *IDs) Discard() {
	if k != nil {
		k.retained.Free()
		k.retained = nil
	}
}

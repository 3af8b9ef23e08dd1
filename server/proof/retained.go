package proof

import (
	"encoding/binary"
	"runtime"
	"slices"

	"carryover/convcache"
	"carryover/sse/rawjson"
)

// Retained are the ids that a ticket covers, kept so that its KV can be handed back. They are in the memory of a room, packed, until Free.
// It belongs to one goroutine at a time.
//
// Whatever reads or writes that memory keeps the Retained alive, and with it the room, which is unmapped when it is dropped.
type Retained struct {
	arena *Arena
	ids   int
	cells int    // 0 for none
	first uint32 // cell
	end   position
	full  bool // there was no room for all, and there are none
}

// Len is how many ids there are.
func (r *Retained) Len() int { return r.ids }

// listPiece is how many ids are unpacked at once.
const listPiece = 256

// AppendList appends the ids as a JSON list, as vLLM writes it.
func (r *Retained) AppendList(dst []byte) []byte {
	var piece [listPiece]uint32
	dst = slices.Grow(dst, 7*r.ids+16) // what rawjson expects of ids, and wants to have free
	from := reader{r.arena, beginning(r.first)}
	for left := r.ids; ; {
		n := min(left, listPiece)
		from.read(piece[:n])
		if left == r.ids {
			dst = rawjson.AppendIDs(dst, piece[:n])
		} else { // a list behind a list: "]" makes room for the next "[", and that is the comma
			joint := len(dst) - 1
			dst = rawjson.AppendIDs(dst[:joint], piece[:n])
			dst[joint] = ','
		}
		if left -= n; left == 0 {
			runtime.KeepAlive(r)
			return dst
		}
	}
}

// Are reports whether an engine's list has exactly these ids, however it spells them. It allocates nothing.
func (r *Retained) Are(list []byte) bool {
	var told, first [listPiece]uint32
	s := rawjson.Scanner{Data: list}
	s.Space()
	more, err := s.Open('[')
	ok := err == nil
	from, left := reader{r.arena, beginning(r.first)}, r.ids
	for more && ok {
		var n int
		if n, more, ok = s.ReadIDs(told[:]); n > left {
			return false
		}
		from.read(first[:n])
		if !slices.Equal(told[:n], first[:n]) {
			return false
		}
		left -= n
	}
	runtime.KeepAlive(r)
	return ok && left == 0 && s.End()
}

// Free gives the memory back. Nothing but Free, which does nothing then, may be called afterwards.
func (r *Retained) Free() {
	if r == nil || r.cells == 0 {
		return
	}
	r.arena.give(r.first, r.end.cell(), r.cells)
	r.ids, r.cells, r.first, r.end = 0, 0, 0, 0
}

// add adds ids, of which it keeps a copy. If there is no room for all of them, those before go too: what lacks one is of no use.
func (r *Retained) add(ids []uint32) {
	if r == nil || r.full {
		return
	}
	for _, id := range ids {
		word, size := pack(id)
		if r.end.left() >= 8 {
			binary.LittleEndian.PutUint64(r.arena.mem[r.end:], word)
			r.end += position(size)
		} else if !r.across(word, size) {
			r.Free()
			r.full = true
			return
		}
	}
	r.ids += len(ids)
	runtime.KeepAlive(r)
}

// across adds an id of which the end may have to go to another cell.
func (r *Retained) across(word uint64, size int) bool {
	for ; size > 0; size-- {
		if r.end.left() == 0 && !r.grow() {
			return false
		}
		r.arena.mem[r.end] = byte(word)
		r.end++
		word >>= 8
	}
	return true
}

// grow goes on in another cell.
func (r *Retained) grow() bool {
	cell, ok := r.arena.take()
	if !ok {
		return false
	}
	if r.cells == 0 {
		r.first = cell
	} else {
		r.arena.link(r.end.cell(), cell+1)
	}
	r.cells++
	r.end = beginning(cell)
	return true
}

// Retain has the ids of the attempt kept from here on: those of the prompt now, whose memory serves other prompts when the turn drops them, and
// those of the answer as they come. It is called before anything of the answer is added; else none are handed over, as with a nil room. What was
// retained before is given back.
func (k *IDs) Retain(arena *Arena) {
	k.Discard()
	if !k.Wanted() || arena == nil {
		return
	}
	k.retained = &Retained{arena: arena}
	k.retained.add(k.ids)
}

// seal ends the chain with what a ticket of so many tokens covers. What is retained must be all that the chain is of, before the last id
// may be taken off it: retained too late, or let go of too early, it is fewer.
func (k *IDs) seal(tokens int) (convcache.Chain, bool) {
	if k.retained != nil && k.retained.ids != k.chain.Len() {
		k.Discard()
	}
	return k.chain.Chain(tokens)
}

// Retained hands over the ids of exactly what a ticket of so many tokens covers: all of them, or all but the last. It is nil if they were not
// kept, there was no room for all, or the turn's Seal has not ended the chain with so many. It is called after Seal, once; what is not
// handed over is given back by Discard, and what is by its Free.
func (k *IDs) Retained(tokens int) *Retained {
	if k == nil || k.retained == nil || k.chain == nil {
		return nil
	}
	r := k.retained
	if r.full || tokens <= 0 || tokens != k.chain.Len() || tokens != r.ids && tokens != r.ids-1 {
		return nil
	}
	k.retained = nil
	r.ids = tokens // a reader stops before the last one
	return r
}

// Discard gives back the memory of what was retained and not handed over.
func (k *IDs) Discard() {
	if k != nil {
		k.retained.Free()
		k.retained = nil
	}
}

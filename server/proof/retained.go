package proof

import (
	"encoding/binary"
	"math/bits"
	"runtime"
	"slices"

	"carryover/convcache"
	"carryover/sse/rawjson"
)

// Retained are the ids that a ticket covers, kept so that its KV can be handed back. They are packed in the memory of an arena until Free.
// A Retained belongs to one goroutine at a time.
//
// Every function that reads or writes that memory keeps the Retained alive, and with it the arena, whose memory is unmapped when nothing
// refers to it.
type Retained struct {
	arena *Arena
	ids   int
	cells int    // 0 if nothing is retained
	first uint32 // cell
	end   position
	full  bool // the arena had no room for all ids, and none are kept
}

// Len returns the number of ids.
func (r *Retained) Len() int { return r.ids }

// listPiece is how many ids are unpacked at once.
const listPiece = 256

// AppendList appends the ids as a JSON list, as vLLM writes it.
func (r *Retained) AppendList(dst []byte) []byte {
	var piece [listPiece]uint32
	dst = slices.Grow(dst, 7*r.ids+16) // the capacity that rawjson expects to need for ids
	from := reader{r.arena, beginning(r.first)}
	for left := r.ids; ; {
		n := min(left, listPiece)
		from.read(piece[:n])
		if left == r.ids {
			dst = rawjson.AppendIDs(dst, piece[:n])
		} else { // a further piece: "]" makes room for the next "[", and that is the comma
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

// Free gives the memory back. Afterwards only Free may be called, and does nothing.
func (r *Retained) Free() {
	if r == nil || r.cells == 0 {
		return
	}
	r.arena.give(r.first, r.end.cell(), r.cells)
	r.ids, r.cells, r.first, r.end = 0, 0, 0, 0
}

// add adds copies of ids. If the arena has no room for all of them, the ids added earlier are freed too: an incomplete list is useless.
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

// across adds an id that may end in another cell.
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

// grow adds a cell.
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
	if r.full || tokens <= 0 || tokens != k.chain.Len() || tokens != r.ids && tokens != r.ids-1 {
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

// Ids are packed as unsigned varints: seven bits to a byte, the lowest bits first. Ids of real vocabularies take 2.2 bytes on average. They
// follow each other in the cells of an arena, and one id may lie in two cells.

// pack returns the bytes of an id, the first one lowest, and their number. It has no branch, because the length of an id can't be
// predicted.
func pack(id uint32) (word uint64, size int) {
	const more = 0x80808080 // the bit that all bytes but the last have set
	v := uint64(id)
	size = (9*bits.Len32(id) + 64) / 64
	word = v&0x7f | v<<1&(0x7f<<8) | v<<2&(0x7f<<16) | v<<3&(0x7f<<24) | v<<4&(0x7f<<32)
	return word | more&(1<<(8*size-8)-1), size
}

// unpack returns the id at the beginning of a word, and the number of its bytes.
func unpack(word uint64) (id uint32, size int) {
	end := bits.TrailingZeros64(^word&0x8080808080) + 1
	word &= 1<<end - 1
	return uint32(word&0x7f | word>>1&(0x7f<<7) | word>>2&(0x7f<<14) | word>>3&(0x7f<<21) | word>>4&(0x7f<<28)), end / 8
}

// position is an offset into an arena's memory at which a stream is written or read. After the last byte of a cell it equals the offset of
// the next cell in memory, which may belong to another stream.
type position int

// left returns how many bytes remain in the cell.
func (p position) left() int { return int(-p & (cellBytes - 1)) }

// cell returns the cell of the byte before the position. There always is one, because a cell begins with its link.
func (p position) cell() uint32 { return uint32((p - 1) / cellBytes) }

// beginning returns the position at which the ids of a cell begin.
func beginning(cell uint32) position { return position(cell)*cellBytes + linkBytes }

// reader reads the ids of a stream. It must not be asked for more ids than the stream has.
type reader struct {
	arena *Arena
	at    position
}

// read fills ids with the next ids of the stream.
func (c *reader) read(ids []uint32) {
	mem, at := c.arena.mem, c.at
	for i := range ids {
		if at.left() < 8 {
			c.at = at
			ids[i] = c.across()
			at = c.at
			continue
		}
		id, size := unpack(binary.LittleEndian.Uint64(mem[at:]))
		ids[i] = id
		at += position(size)
	}
	c.at = at
}

// across reads an id that may end in the next cell.
func (c *reader) across() uint32 {
	var word uint64
	for shift := 0; ; shift += 8 {
		if c.at.left() == 0 {
			c.at = beginning(c.arena.next(c.at.cell()) - 1)
		}
		b := c.arena.mem[c.at]
		c.at++
		if word |= uint64(b) << shift; b < 0x80 {
			id, _ := unpack(word)
			return id
		}
	}
}

package proof

import (
	"encoding/binary"
	"math/bits"
)

// Ids are kept as unsigned varints, seven bits to a byte, the lowest first. Ids of real vocabularies take 2.2 bytes on average. They follow each
// other in the cells of an arena, and may cross the border between two cells.

// pack returns an id's bytes, the first one lowest, and how many they are. It has no branch: the length of an id is as good as random.
func pack(id uint32) (word uint64, size int) {
	const more = 0x80808080 // of all bytes but the last
	v := uint64(id)
	size = (9*bits.Len32(id) + 64) / 64
	word = v&0x7f | v<<1&(0x7f<<8) | v<<2&(0x7f<<16) | v<<3&(0x7f<<24) | v<<4&(0x7f<<32)
	return word | more&(1<<(8*size-8)-1), size
}

// unpack returns the id with whose bytes a word begins, and how many they are.
func unpack(word uint64) (id uint32, size int) {
	end := bits.TrailingZeros64(^word&0x8080808080) + 1
	word &= 1<<end - 1
	return uint32(word&0x7f | word>>1&(0x7f<<7) | word>>2&(0x7f<<14) | word>>3&(0x7f<<21) | word>>4&(0x7f<<28)), end / 8
}

// position is an offset into an arena's memory, at which a stream is written or read. Behind the last byte of a cell it is the offset at which
// the next cell in memory begins, whichever stream that belongs to.
type position int

// left is how many bytes the cell has from there on.
func (p position) left() int { return int(-p & (cellBytes - 1)) }

// cell is the cell of the byte before, which is a link at least.
func (p position) cell() uint32 { return uint32((p - 1) / cellBytes) }

// beginning is where the ids of a cell begin.
func beginning(cell uint32) position { return position(cell)*cellBytes + linkBytes }

// reader reads the ids of a stream, and no more than there are.
type reader struct {
	arena *Arena
	at    position
}

// read reads as many ids as there is room for.
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

// across reads an id of which the end may be in another cell.
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

package proof

import (
	"encoding/binary"
	"math/bits"
)

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

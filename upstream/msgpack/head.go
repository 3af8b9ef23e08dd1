package msgpack

import "encoding/binary"

// head is what the first bytes of a value say about it.
type head struct {
	kind Kind
	// size is the number of bytes of the head itself. n bytes follow it (the first byte of an extension is its type), or n
	// values of an array, or 2n values of a map.
	size int
	n    uint64
}

// least returns the least number of bytes that follow the head: each value takes at least one.
func (h head) least() uint64 {
	if h.kind == Map {
		return 2 * h.n
	}
	return h.n
}

// headOf reads the head of a value. Its kind is Invalid if b does not begin with a head. It reads no more than the head.
func headOf(b []byte) head {
	if len(b) == 0 {
		return head{}
	}
	switch c := b[0]; {
	case c <= 0x7f, c >= 0xe0:
		return head{Int, 1, 0}
	case c <= 0x8f:
		return head{Map, 1, uint64(c & 0x0f)}
	case c <= 0x9f:
		return head{Array, 1, uint64(c & 0x0f)}
	case c <= 0xbf:
		return head{String, 1, uint64(c & 0x1f)}
	case c == 0xc0:
		return head{Nil, 1, 0}
	case c == 0xc1:
		return head{}
	case c <= 0xc3:
		return head{Bool, 1, 0}
	case c <= 0xc6:
		return counted(b, Bytes, 1<<(c-0xc4))
	case c <= 0xc9:
		h := counted(b, Ext, 1<<(c-0xc7))
		h.n++
		return h
	case c <= 0xcb:
		return head{Float, 1, 4 << (c - 0xca)}
	case c <= 0xcf:
		return head{Int, 1, 1 << (c - 0xcc)}
	case c <= 0xd3:
		return head{Int, 1, 1 << (c - 0xd0)}
	case c <= 0xd8:
		return head{Ext, 1, 1<<(c-0xd4) + 1}
	case c <= 0xdb:
		return counted(b, String, 1<<(c-0xd9))
	case c <= 0xdd:
		return counted(b, Array, 2<<(c-0xdc))
	default: // 0xde, 0xdf
		return counted(b, Map, 2<<(c-0xde))
	}
}

// counted returns the head of a value whose count is in the width bytes behind the first byte.
func counted(b []byte, kind Kind, width int) head {
	if len(b) <= width {
		return head{}
	}
	return head{kind, 1 + width, unsigned(b[1 : 1+width])}
}

// unsigned returns the big-endian number in 0, 1, 2, 4 or 8 bytes.
func unsigned(b []byte) uint64 {
	switch len(b) {
	case 1:
		return uint64(b[0])
	case 2:
		return uint64(binary.BigEndian.Uint16(b))
	case 4:
		return uint64(binary.BigEndian.Uint32(b))
	case 8:
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

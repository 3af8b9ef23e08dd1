package rawjson

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/bits"
	"slices"
	"strconv"
)

// ParseIDs reads a JSON array of token ids: integers from 0 to 2^32-1 without sign, fraction, exponent or leading zero. 128k ids take 1 ms.
func ParseIDs(raw []byte) (ids []uint32, ok bool) {
	s := Scanner{Data: raw}
	s.Space()
	ids, ok = s.IDsInto(nil)
	if !ok || !s.End() {
		return nil, false
	}
	return ids, true
}

// AppendIDs appends ids as vLLM writes them, an array without spaces.
func AppendIDs(dst []byte, ids []uint32) []byte {
	// Token ids are below a million: at most seven bytes with the comma.
	dst = append(slices.Grow(dst, 7*len(ids)+idSpace+1), '[')
	for i, id := range ids {
		if cap(dst)-len(dst) < idSpace {
			dst = slices.Grow(dst, 7*(len(ids)-i)+idSpace)
		}
		if id < 1e8 {
			digits, n := digitsOf(id)
			end := len(dst)
			binary.LittleEndian.PutUint64(dst[end:end+8], digits)
			dst = dst[:end+n]
		} else {
			dst = strconv.AppendUint(dst, uint64(id), 10)
		}
		dst = append(dst, ',')
	}
	if len(ids) > 0 {
		dst = dst[:len(dst)-1]
	}
	return append(dst, ']')
}

// idSpace is the length of the longest id with the next character and the closing bracket.
const idSpace = len("4294967295,]")

// EqualIDs reports whether raw is a JSON array of exactly these ids. It does not allocate.
func EqualIDs(raw []byte, ids []uint32) bool {
	s := Scanner{Data: raw}
	s.Space()
	var buf [512]uint32
	more, err := s.Open('[')
	ok := err == nil
	for more && ok {
		var n int
		n, more, ok = s.ReadIDs(buf[:])
		if n > len(ids) || !slices.Equal(buf[:n], ids[:n]) {
			return false
		}
		ids = ids[n:]
	}
	return ok && len(ids) == 0 && s.End()
}

// IDsInto reads ids as ParseIDs does, into the buffer if they fit; its old content does not matter. It counts commas first, because growing
// the list would cost a hundred times as much.
func (s *Scanner) IDsInto(buffer []uint32) (ids []uint32, ok bool) {
	rest := s.Data[s.Pos:]
	end := max(bytes.IndexByte(rest, ']'), 0)
	// An id and its comma take two bytes, so a text of commas can't reserve more.
	n := min(bytes.Count(rest[:end], []byte(",")), end/2) + 1
	if ids = buffer[:cap(buffer)]; n > len(ids) {
		ids = make([]uint32, n)
	}
	ids = ids[:n]
	end += s.Pos
	more, err := s.Open('[')
	if !more || err != nil {
		return ids[:0], err == nil
	}
	if n, ok = s.halves(ids, end); !ok {
		return nil, false
	}
	last, more, ok := s.ReadIDs(ids[n:])
	return ids[:n+last], ok && !more
}

// halves reads both halves of an array that Open has opened and that ends at end side by side. One list alone makes the processor wait, because
// an id's beginning is known only after the id before it. It leaves Pos behind the n ids that it read.
func (s *Scanner) halves(ids []uint32, end int) (n int, ok bool) {
	const worth = 256 // bytes
	data, i := s.Data, s.Pos
	if end-i < worth {
		return 0, true
	}
	middle := i + (end-i)/2
	comma := bytes.IndexByte(data[middle:end], ',')
	if comma < 0 { // a single id or part of one, and white space
		return 0, true
	}
	middle += comma + 1
	first := bytes.Count(data[i:middle], []byte(",")) // ids before the middle, at most: ids has an element for each comma
	pairs := min(first, len(ids)-first)
	front, back := ids[:pairs], ids[first:first+pairs]
	n, j := 0, middle
	for ; n < len(front) && n < len(back) && j+8 <= len(data); n++ {
		a, b := load(data, i), load(data, j)
		aEnd, bEnd := plainEnd(a), plainEnd(b)
		aDigits, bDigits := plainDigits(a, aEnd), plainDigits(b, bEnd)
		if !isPlain(a, aEnd, aDigits) || !isPlain(b, bEnd, bDigits) {
			break
		}
		front[n], back[n] = decimal(aDigits), decimal(bDigits)
		i += aEnd>>3 + 1
		j += bEnd>>3 + 1
	}
	s.Pos = i
	rest, more, ok := s.ReadIDs(ids[n:first])
	if !ok || !more || n+rest < first {
		return 0, false
	}
	s.Pos = j
	s.Space()
	return first + n, true
}

// ReadIDs reads ids of an array that Open has opened, until buf is full or the array ends. more means that Pos is at another id.
func (s *Scanner) ReadIDs(buf []uint32) (n int, more, ok bool) {
	for n < len(buf) {
		plain, end := plainIDs(s.Data, s.Pos, buf[n:])
		s.Pos = end
		s.Space()
		if n += plain; plain > 0 {
			continue
		}
		id, end := readID(s.Data, s.Pos)
		if end == s.Pos {
			return n, false, false
		}
		buf[n], s.Pos = id, end
		n++
		more, err := s.Separator(']')
		if !more || err != nil {
			return n, false, err == nil
		}
	}
	return n, true, true
}

// plainIDs reads plain ids (see isPlain) until buf is full or another kind comes. It returns their number and the index behind the last comma.
func plainIDs(data []byte, i int, buf []uint32) (n, end int) {
	for n < len(buf) && i+8 <= len(data) {
		word := load(data, i)
		end := plainEnd(word)
		value := plainDigits(word, end)
		if !isPlain(word, end, value) {
			break
		}
		buf[n] = decimal(value)
		n++
		i += end>>3 + 1
	}
	return n, i
}

func readID(data []byte, i int) (id uint32, end int) {
	n := uint64(0)
	for end = i; end < len(data) && data[end]-'0' <= 9 && n <= math.MaxUint32; end++ {
		n = n*10 + uint64(data[end]-'0')
	}
	if end-i > 1 && data[i] == '0' || n > math.MaxUint32 {
		return 0, i
	}
	return uint32(n), end
}

// CountInts counts the integers from 0 to 2^31-1 of a non-empty array that Open has opened, and reads it to its end, as strictly as ReadIDs. It
// computes only values that could exceed the bound: the block list of a long prompt has 25 kB, and only its length matters.
func (s *Scanner) CountInts() (n int, ok bool) {
	for {
		plain := plainInts(s.Data[s.Pos:])
		n += bytes.Count(plain, []byte{','})
		s.Pos += len(plain)
		s.Space()
		id, end := readID(s.Data, s.Pos)
		if end == s.Pos || id > math.MaxInt32 {
			return 0, false
		}
		s.Pos = end
		n++
		more, err := s.Separator(']')
		if !more || err != nil {
			return n, err == nil
		}
	}
}

// plainInts returns the beginning of data that is integers of one to nine digits without a leading zero, each with a comma right behind. Eight
// bytes without a comma end it, too: no engine numbers its blocks that high.
func plainInts(data []byte) []byte {
	const mostDigits = 9         // 2^31-1 has ten
	i, begins := 0, uint64(0x80) // as in integers
	open := 0                    // digits so far of an integer from an earlier word
	for ; i+8 <= len(data); i += 8 {
		word := load(data, i)
		digits := word ^ everyByte*'0'
		commas := zeros(word ^ everyByte*',')
		begins |= commas << 8
		if commas == 0 || notDigits(digits) != commas || begins&(commas|zeros(digits)) != 0 || open+bits.TrailingZeros64(commas)/8 > mostDigits {
			break
		}
		begins, open = commas>>56, bits.LeadingZeros64(commas)/8
	}
	return data[:bytes.LastIndexByte(data[:i], ',')+1]
}

// AfterInts returns the index where the first n integers end. CountInts must have read raw, and found more than n.
func AfterInts(raw []byte, n int) int {
	const piece = 256
	at := 0
	for n > 0 {
		commas := bytes.Count(raw[at:min(at+piece, len(raw))], []byte{','})
		if commas < n {
			n -= commas
			at += piece
			continue
		}
		for ; n > 0; n-- {
			at += bytes.IndexByte(raw[at:], ',') + 1
		}
	}
	return at - 1
}

package rawjson

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/bits"
	"slices"
	"strconv"
)

// ParseIDs reads a JSON array of token ids: integers from 0 to 2^32-1 without
// sign, fraction, exponent or leading zero. White space is allowed where JSON
// allows it. An empty array is an empty list. 128k ids take 1 ms.
func ParseIDs(raw []byte) (ids []uint32, ok bool) {
	s := Scanner{Data: raw}
	s.Space()
	ids, ok = s.IDs()
	if !ok || !s.End() {
		return nil, false
	}
	return ids, true
}

// AppendIDs appends ids as vLLM writes them, a JSON array without spaces.
func AppendIDs(dst []byte, ids []uint32) []byte {
	// Vocabularies end below a million, so that an id and its comma take seven bytes.
	dst = append(slices.Grow(dst, 7*len(ids)+2), '[')
	for i, id := range ids {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendUint(dst, uint64(id), 10)
	}
	return append(dst, ']')
}

// EqualIDs reports whether raw is a JSON array of exactly these ids. It allocates
// nothing.
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

// IDs reads an array of ids, as ParseIDs does. The commas before the next bracket tell how
// many there are, which costs a hundredth of growing the list on the way.
func (s *Scanner) IDs() (ids []uint32, ok bool) {
	rest := s.Data[s.Pos:]
	end := max(bytes.IndexByte(rest, ']'), 0)
	// Each id but the last takes two bytes, so that commas alone reserve no more.
	ids = make([]uint32, min(bytes.Count(rest[:end], []byte(",")), end/2)+1)
	more, err := s.Open('[')
	if !more || err != nil {
		return ids[:0], err == nil
	}
	n, more, ok := s.ReadIDs(ids)
	return ids[:n], ok && !more
}

// ReadIDs reads ids of an array that Open has opened until buf is full or the array
// ends. more says that another id is to follow; Pos is at it then.
func (s *Scanner) ReadIDs(buf []uint32) (n int, more, ok bool) {
	for n < len(buf) {
		n += s.plainIDs(buf[n:])
		s.Space()
		if n == len(buf) {
			break
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

// plainIDs reads ids of up to seven digits that a comma follows at once, which are
// all but the last one of an engine's list, until buf is full or another id comes.
// It leaves Pos behind a comma, or where it was.
//
// A loop over digits mispredicts the end of nearly every id and takes four times as
// long. Where the next id begins depends on five operations here, and the rest of
// one id is done while the next is looked for.
func (s *Scanner) plainIDs(buf []uint32) (n int) {
	data, i := s.Data, s.Pos
	for n < len(buf) && i+8 <= len(data) {
		word := load(data, i)
		// Of digits and commas, digits have bit 4. All else is refused below, eight digits too.
		end := bits.TrailingZeros64(word&0x0010101010101010 ^ 0x1010101010101010)
		size := end &^ 7
		value := (word ^ 0x3030303030303030) << ((64 - size) & 63)
		if notDigits(value) != 0 || byte(word>>(size&63)) != ',' || size == 0 || byte(word) == '0' && size > 8 {
			break
		}
		buf[n] = decimal(value)
		n++
		i += end>>3 + 1
	}
	s.Pos = i
	return n
}

// load returns the eight bytes from data[i] on, the first one lowest. The second bound spares the check that a slice does not begin at
// the end of its array, on which the place of the next id would wait.
func load(data []byte, i int) uint64 { return binary.LittleEndian.Uint64(data[i : i+8 : i+8]) }

// notDigits marks the high bit of each byte of a word that is above nine, and perhaps of bytes above such a one.
func notDigits(word uint64) uint64 { return (word + 0x7676767676767676 | word) & 0x8080808080808080 }

// decimal returns the number whose digits are the bytes of word, the last one highest.
func decimal(word uint64) uint32 {
	word = (word*10 + word>>8) & 0x00ff00ff00ff00ff
	word = (word*100 + word>>16) & 0x0000ffff0000ffff
	return uint32(word*10000 + word>>32)
}

// readID reads the id at data[i:] and returns its end, i if there is none.
func readID(data []byte, i int) (id uint32, end int) {
	if i+8 <= len(data) {
		word := load(data, i) ^ 0x3030303030303030
		digits := bits.TrailingZeros64(notDigits(word)) / 8
		if digits > 0 && digits < 8 && (digits == 1 || data[i] != '0') {
			return decimal(word << (64 - 8*digits)), i + digits
		}
	}
	n := uint64(0)
	for end = i; end < len(data) && data[end]-'0' <= 9 && n <= math.MaxUint32; end++ {
		n = n*10 + uint64(data[end]-'0')
	}
	if end-i > 1 && data[i] == '0' || n > math.MaxUint32 {
		return 0, i
	}
	return uint32(n), end
}

package rawjson

import (
	"bytes"
	"math"
	"slices"
	"strconv"
)

// ParseIDs reads a JSON array of token ids: integers from 0 to 2^32-1 without
// sign, fraction, exponent or leading zero. White space is allowed where JSON
// allows it. An empty array is an empty list. 128k ids take 1 ms.
func ParseIDs(raw []byte) (ids []uint32, ok bool) {
	s := Scanner{Data: raw}
	s.Space()
	ids, ok = s.IDsInto(nil)
	if !ok || !s.End() {
		return nil, false
	}
	return ids, true
}

// AppendIDs appends ids as vLLM writes them, a JSON array without spaces.
func AppendIDs(dst []byte, ids []uint32) []byte {
	// Token ids are below a million, so an id and its comma take at most seven bytes.
	dst = append(slices.Grow(dst, 7*len(ids)+len("[]")), '[')
	for i, id := range ids {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendUint(dst, uint64(id), 10)
	}
	return append(dst, ']')
}

// EqualIDs reports whether raw is a JSON array of exactly these ids.
func EqualIDs(raw []byte, ids []uint32) bool {
	read, ok := ParseIDs(raw)
	return ok && slices.Equal(read, ids)
}

// IDsInto reads an array of ids, as ParseIDs does. The ids are in the buffer if they fit, whatever it holds before. It counts the commas
// before the next bracket to know their number; growing the list on the way would cost a hundred times as much.
func (s *Scanner) IDsInto(buffer []uint32) (ids []uint32, ok bool) {
	rest := s.Data[s.Pos:]
	end := max(bytes.IndexByte(rest, ']'), 0)
	// Each id but the last takes at least two bytes, so a text of commas alone can't reserve more than that.
	n := min(bytes.Count(rest[:end], []byte(",")), end/2) + 1
	if ids = buffer[:cap(buffer)]; n > len(ids) {
		ids = make([]uint32, n)
	}
	more, err := s.Open('[')
	if !more || err != nil {
		return ids[:0], err == nil
	}
	n, more, ok = s.ReadIDs(ids[:n])
	return ids[:n], ok && !more
}

// ReadIDs reads ids of an array that Open has opened, until buf is full or the array
// ends. more says that another id follows; Pos is at that id then.
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

// plainIDs reads plain ids (see isPlain) from data[i:] until buf is full or another kind of id comes. It returns their number and the index
// behind the last one's comma.
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

// readID reads the id at data[i:] and returns its end, i if there is none.
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

// CountInts counts the integers from 0 to 2^31-1 of an array that Open has opened and that is not empty, and reads the array to its end.
// It accepts what ReadIDs accepts, up to that bound. It computes a value only if the value could exceed the bound: the block list of a
// long prompt has 25 kB, and the caller wants only its length.
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

// AfterInts returns the index where the first n integers of raw end, before the last one's comma. CountInts must have read raw, and raw
// must hold more than n integers.
func AfterInts(raw []byte, n int) int {
	at := 0
	for range n {
		at += bytes.IndexByte(raw[at:], ',') + 1
	}
	return at - 1
}

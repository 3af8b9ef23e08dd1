package convcache

import (
	"encoding/binary"
	"math"
	"strconv"
)

// Packed params are the same bytes with lists of whole numbers written as differences: pairs of a literal
// and a list, each after its length, until a list of length 0 ends them. Block ids are most of a long
// ticket's params, and neighbours are often next to each other in decode's memory: 8,192 ids take 8 to 24
// kB instead of 50.
const (
	// minPacked is the shortest text that is worth it: 4 kB take 12 µs to pack and unpack, as much as their
	// way to the server and back.
	minPacked = 4 << 10
	// minList is the shortest list that is.
	minList = 8
	// maxUnpacked bounds what a packed text may grow to: params are at most 1 MiB.
	maxUnpacked = 1 << 20
	// maxDigits is the length of the largest number, 2^32-1.
	maxDigits = 10
)

// separators are what stands between the numbers of a list, as Go's and Python's encoders write it.
var separators = [...]string{",", ", "} //nolint:gochecknoglobals // immutable

// pack appends the packed form of any text. It knows nothing of JSON: what unpack gives is the same bytes
// because every list is one that unpack would write exactly so.
func pack(to, text []byte) []byte {
	literal := 0 // where the pending literal begins
	var ids []uint32
	for at := 0; at < len(text) && len(text) >= minPacked; {
		if !startsNumber(text, at) {
			at++
			continue
		}
		var separator, end int
		ids, separator, end = listAt(ids[:0], text, at)
		if len(ids) >= minList {
			to = appendText(to, text[literal:at])
			to = appendList(to, ids, separator)
			literal = end
		}
		at = end
	}
	to = appendText(to, text[literal:])
	return binary.AppendUvarint(to, 0)
}

func appendList(to []byte, ids []uint32, separator int) []byte {
	to = binary.AppendUvarint(to, uint64(len(ids)))
	to = append(to, byte(separator))
	previous := int64(0)
	for _, id := range ids {
		to = binary.AppendVarint(to, int64(id)-previous)
		previous = int64(id)
	}
	return to
}

// unpack is the inverse of pack. It refuses what pack would not have written at that length or larger than
// params may be.
func unpack(packed []byte) ([]byte, error) {
	r := reader{in: packed}
	text := make([]byte, 0, min(4*len(packed), maxUnpacked))
	for {
		text = append(text, r.bytes(r.number())...)
		n := r.number()
		if r.failed || len(text) > maxUnpacked {
			return nil, errCodec
		}
		if n == 0 {
			break
		}
		separator := int(r.byte())
		if n > len(r.in) || separator >= len(separators) { // every number takes at least one byte
			return nil, errCodec
		}
		if text = r.list(text, n, separators[separator]); r.failed || len(text) > maxUnpacked {
			return nil, errCodec
		}
	}
	if len(r.in) != 0 {
		return nil, errCodec
	}
	return text, nil
}

// list appends n numbers in decimal.
func (r *reader) list(text []byte, n int, separator string) []byte {
	previous := int64(0)
	for i := range n {
		step, size := binary.Varint(r.in)
		if size <= 0 || step > math.MaxUint32 || step < -math.MaxUint32 {
			r.failed = true
			return text
		}
		r.in = r.in[size:]
		previous += step
		if previous < 0 || previous > math.MaxUint32 {
			r.failed = true
			return text
		}
		if i > 0 {
			text = append(text, separator...)
		}
		text = strconv.AppendUint(text, uint64(previous), 10)
		if len(text) > maxUnpacked {
			return text
		}
	}
	return text
}

// startsNumber says whether a digit at this place begins a number rather than continues one.
func startsNumber(text []byte, at int) bool {
	return isDigit(text[at]) && (at == 0 || !isDigit(text[at-1]))
}

// listAt appends to ids the longest list of numbers that begins here with a number, all after the same
// separator, and returns where it ends.
func listAt(ids []uint32, text []byte, at int) (_ []uint32, separator, end int) {
	id, end, ok := numberAt(text, at)
	if !ok {
		return ids, 0, end
	}
	ids = append(ids, id)
	separator = -1
	for {
		next := separatorAt(text, end)
		if next < 0 || separator >= 0 && next != separator {
			break
		}
		id, after, ok := numberAt(text, end+len(separators[next]))
		if !ok {
			break
		}
		separator = next
		ids = append(ids, id)
		end = after
	}
	return ids, max(separator, 0), end
}

// separatorAt returns which separator stands here, the longest that does, or -1.
func separatorAt(text []byte, at int) int {
	for i := len(separators) - 1; i >= 0; i-- {
		s := separators[i]
		if len(text)-at > len(s) && string(text[at:at+len(s)]) == s && isDigit(text[at+len(s)]) {
			return i
		}
	}
	return -1
}

// numberAt reads a number as strconv.AppendUint writes it, without leading zeros and below 2^32, and returns
// the end of its digits in any case.
func numberAt(text []byte, at int) (id uint32, end int, ok bool) {
	n := uint64(0)
	for end = at; end < len(text) && isDigit(text[end]); end++ {
		n = n*10 + uint64(text[end]-'0')
	}
	length := end - at
	return uint32(n), end, length == 1 || text[at] != '0' && length <= maxDigits && n <= math.MaxUint32
}

func isDigit(b byte) bool { return '0' <= b && b <= '9' }

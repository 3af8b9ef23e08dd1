package rawjson

import (
	"bytes"
	"math"
	"math/bits"
)

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

// plainInts returns the beginning of data that is integers of one to nine digits that do not begin with a zero, with a comma behind each and
// nothing else. Eight bytes without a comma end it too: no engine numbers its blocks that high.
func plainInts(data []byte) []byte {
	const mostDigits = 9         // 2^31-1 has ten
	i, begins := 0, uint64(0x80) // as in integers
	open := 0                    // digits so far of an integer that began in an earlier word
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

// AfterInts returns the index where the first n integers of raw end, before the last one's comma. CountInts must have read raw, and raw
// must hold more than n integers.
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

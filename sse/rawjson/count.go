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
		n += s.countPlain()
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

// countPlain counts integers of one to nine digits that do not begin with a zero and have nothing but single commas between them. The
// first one begins at Pos. It leaves Pos behind a comma, or where it was. Eight bytes without a comma end it too: no engine numbers its
// blocks that high.
func (s *Scanner) countPlain() int {
	const mostDigits = 9 // 2^31-1 has ten
	data, i := s.Data, s.Pos
	begins := uint64(0x80) // as in Scanner.integers
	open := 0              // digits so far of an integer that began in an earlier word
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
	plain := data[s.Pos:i]
	plain = plain[:bytes.LastIndexByte(plain, ',')+1]
	s.Pos += len(plain)
	return bytes.Count(plain, []byte{','})
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

package rawjson

import (
	"bytes"
	"math"
	"math/bits"
)

// CountInts reads what follows of an array of integers from 0 to 2^31-1 that Open has opened and that is not empty, to its end, and
// returns how many they are. It takes what ReadIDs takes, up to that bound, and looks at no value that can't be above it: a list of
// blocks of a long prompt has 25 kB, and all that is wanted of it is its length.
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

// countPlain goes over integers of one to nine digits, none of them beginning with a zero, as long as nothing but single commas is
// between them, and returns how many they are. The first one begins at Pos. It leaves Pos behind a comma, or where it was. Words of eight
// digits end it too: no engine has so many blocks.
func (s *Scanner) countPlain() int {
	const mostDigits = 9 // 2^31-1 has ten
	data, i := s.Data, s.Pos
	begins := uint64(0x80) // as in integers
	open := 0              // digits so far of the integer that is open between two words
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

// AfterInts returns where the first n integers of an array end, the last one's comma not included, raw being what CountInts has read and
// more than n integers long.
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

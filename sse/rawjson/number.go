package rawjson

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/bits"
)

// SkipNumber reads a number: RFC 8259 section 6.
func (s *Scanner) SkipNumber() error {
	if s.Peek() == '-' {
		s.Pos++
	}
	if s.Peek() == '0' {
		s.Pos++
	} else if !s.digits() {
		return s.Fault("unexpected byte")
	}
	if s.Peek() == '.' {
		s.Pos++
		if !s.digits() {
			return s.Fault("expected a digit")
		}
	}
	if c := s.Peek(); c == 'e' || c == 'E' {
		s.Pos++
		if c = s.Peek(); c == '+' || c == '-' {
			s.Pos++
		}
		if !s.digits() {
			return s.Fault("expected a digit")
		}
	}
	return nil
}

func (s *Scanner) digits() bool {
	start := s.Pos
	for s.Pos < len(s.Data) && s.Data[s.Pos]-'0' <= 9 {
		s.Pos++
	}
	return s.Pos > start
}

// Integer reads a value that is an integer literal: no fraction, no exponent, no quotes, and not -0, which is a float to some
// parsers. A value that an int cannot hold becomes the largest or smallest int, which every bound refuses.
func Integer(raw []byte) (n int, ok bool) {
	digits := bytes.TrimPrefix(raw, []byte("-"))
	for _, c := range digits {
		if c < '0' || c > '9' {
			return 0, false
		}
		if n > (math.MaxInt-9)/10 {
			n = math.MaxInt
			continue
		}
		n = n*10 + int(c-'0')
	}
	if len(digits) < len(raw) {
		return -n, n > 0
	}
	return n, len(digits) > 0
}

// Engines' answers are mostly lists of integers: the ids of a prompt's tokens and of its blocks. The functions here read them eight bytes
// at a time. A loop over single digits mispredicts the end of nearly every id and takes four times as long.

const (
	everyByte = 0x0101010101010101
	highBits  = 0x8080808080808080
)

// load returns the eight bytes from data[i] on, the first one lowest. The slice's capacity bound spares a check for an empty slice at the
// end of the array; the address of the next id would wait for that check.
func load(data []byte, i int) uint64 { return binary.LittleEndian.Uint64(data[i : i+8 : i+8]) }

// plainEnd returns, for a word that begins with a plain id, eight times the number of its digits, plus something below eight. For any other
// word the result is arbitrary. Digits have bit 4 set, commas do not. If the word has no digits, isPlain finds that in plainDigits' result.
func plainEnd(word uint64) int {
	return bits.TrailingZeros64(word&(everyByte<<4>>8) ^ everyByte<<4)
}

// plainDigits returns the digits of a plain id as numbers, the last digit highest. end is the result of plainEnd.
func plainDigits(word uint64, end int) uint64 {
	return (word ^ everyByte*'0') << ((64 - end&^7) & 63)
}

// isPlain reports whether a word begins with an id of one to seven digits and a comma right behind it, as all ids but the last of an
// engine's list do. end and digits are the results of plainEnd and plainDigits.
func isPlain(word uint64, end int, digits uint64) bool {
	return notDigits(digits) == 0 && byte(word>>(end&0x38)) == ',' && (byte(word) != '0' || end < 16)
}

// notDigits marks the high bit of each byte of a word that is above nine. It may wrongly mark bytes above a marked one.
func notDigits(word uint64) uint64 { return (word + everyByte*(0x7f-9) | word) & highBits }

// zeros marks the high bit of each byte of a word that is zero.
func zeros(word uint64) uint64 { return ^(word&^highBits + ^uint64(highBits) | word) & highBits }

// decimal returns the number whose digits are the bytes of word, the last one highest.
func decimal(word uint64) uint32 {
	word = (word*10 + word>>8) & 0x00ff00ff00ff00ff
	word = (word*100 + word>>16) & 0x0000ffff0000ffff
	return uint32(word*10000 + word>>32)
}

// plainInts returns the beginning of data that is integers of one to nine digits that do not begin with a zero, with a comma behind each and
// nothing else. Eight bytes without a comma end it too: no engine numbers its tokens or blocks that high.
func plainInts(data []byte) []byte {
	const mostDigits = 9         // 2^31-1 has ten
	i, begins := 0, uint64(0x80) // high bits mark bytes at which an integer begins: the first byte, and those behind commas
	open := 0                    // digits so far of an integer that began in an earlier word
	for ; i+8 <= len(data); i += 8 {
		word := load(data, i)
		digits := word ^ everyByte*'0'
		commas := zeros(word ^ everyByte*',')
		begins |= commas << 8
		// A comma must not stand where an integer begins. A zero there is left to the caller: only the integer 0 may begin with it.
		if commas == 0 || notDigits(digits) != commas || begins&(commas|zeros(digits)) != 0 || open+bits.TrailingZeros64(commas)/8 > mostDigits {
			break
		}
		begins, open = commas>>56, bits.LeadingZeros64(commas)/8
	}
	return data[:bytes.LastIndexByte(data[:i], ',')+1]
}

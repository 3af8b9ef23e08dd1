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

// digitsOf returns the decimal text of a number below 10^8, the first digit lowest, and its length. It divides all parts by 10 and 100 at
// once, with multiplications that are exact for parts of this size. One digit after the other takes five times as long.
func digitsOf(n uint32) (text uint64, size int) {
	word := uint64(n/10000) | uint64(n%10000)<<32
	hundreds := word * 10486 >> 20 & 0x0000007f0000007f
	word = hundreds | (word-100*hundreds)<<16
	tens := word * 103 >> 10 & 0x000f000f000f000f
	word = tens | (word-10*tens)<<8
	zeros := bits.TrailingZeros64(word|1<<56) &^ 7 // leading zeros, except that the last digit stays
	return (word + everyByte*'0') >> zeros, 8 - zeros/8
}

// integers skips integers of an array as long as there are only digits and commas. The first digit is at data[i]. It returns the index
// behind the last comma, or i.
func integers(data []byte, i int) int {
	start := i
	begins := uint64(0x80) // high bits mark bytes at which an integer begins: the first byte, and those behind commas
	for ; i+8 <= len(data); i += 8 {
		word := load(data, i)
		digits := word ^ everyByte*'0'
		commas := zeros(word ^ everyByte*',')
		begins |= commas << 8
		// A comma must not stand where an integer begins. A zero there is left to the slow path: only the integer 0 may begin with it.
		if notDigits(digits) != commas || begins&(commas|zeros(digits)) != 0 {
			break
		}
		begins = commas >> 56
	}
	return start + bytes.LastIndexByte(data[start:i], ',') + 1
}

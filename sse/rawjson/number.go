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

// Integer reads an integer literal: no fraction, exponent or quotes, and not -0, a float to some parsers. A value beyond int becomes the
// largest or smallest int, which every bound refuses.
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

// Answers are mostly lists of ids of tokens and blocks. The functions below read eight bytes at a time: a loop over digits mispredicts the end
// of nearly every id, and takes four times as long.

const (
	everyByte = 0x0101010101010101
	highBits  = 0x8080808080808080
)

// load returns eight bytes from data[i], the first one lowest. The capacity bound spares a check for an empty slice, which the address of the
// next id would wait for.
func load(data []byte, i int) uint64 { return binary.LittleEndian.Uint64(data[i : i+8 : i+8]) }

// plainEnd returns eight times the number of digits of a plain id, plus something below eight; arbitrary for other words. Digits have bit 4
// set, commas do not. isPlain finds a word without digits in plainDigits' result.
func plainEnd(word uint64) int {
	return bits.TrailingZeros64(word&(everyByte<<4>>8) ^ everyByte<<4)
}

// plainDigits returns the digits of a plain id as numbers, the last one highest. end is from plainEnd.
func plainDigits(word uint64, end int) uint64 {
	return (word ^ everyByte*'0') << ((64 - end&^7) & 63)
}

// isPlain reports whether a word begins with an id of one to seven digits and a comma, as all ids but the last of an engine's list do.
func isPlain(word uint64, end int, digits uint64) bool {
	return notDigits(digits) == 0 && byte(word>>(end&0x38)) == ',' && (byte(word) != '0' || end < 16)
}

// notDigits marks the high bit of each byte above nine. It may wrongly mark bytes above a marked one.
func notDigits(word uint64) uint64 { return (word + everyByte*(0x7f-9) | word) & highBits }

func zeros(word uint64) uint64 { return ^(word&^highBits + ^uint64(highBits) | word) & highBits }

// decimal returns the number with these digits, the last one highest.
func decimal(word uint64) uint32 {
	word = (word*10 + word>>8) & 0x00ff00ff00ff00ff
	word = (word*100 + word>>16) & 0x0000ffff0000ffff
	return uint32(word*10000 + word>>32)
}

// digitsOf returns the decimal text of a number below 10^8, the first digit lowest, and its length. It divides all parts at once, by
// multiplications that are exact for parts of this size. One digit after the other takes five times as long.
func digitsOf(n uint32) (text uint64, size int) {
	word := uint64(n/10000) | uint64(n%10000)<<32
	hundreds := word * 10486 >> 20 & 0x0000007f0000007f
	word = hundreds | (word-100*hundreds)<<16
	tens := word * 103 >> 10 & 0x000f000f000f000f
	word = tens | (word-10*tens)<<8
	zeros := bits.TrailingZeros64(word|1<<56) &^ 7 // leading zeros, but not the last digit
	return (word + everyByte*'0') >> zeros, 8 - zeros/8
}

// integers skips digits and commas of an array from the first digit at data[i], and returns the index behind the last comma, or i.
func integers(data []byte, i int) int {
	start := i
	begins := uint64(0x80) // high bits mark where an integer begins: the first byte, and those behind commas
	for ; i+8 <= len(data); i += 8 {
		word := load(data, i)
		digits := word ^ everyByte*'0'
		commas := zeros(word ^ everyByte*',')
		begins |= commas << 8
		// No comma may stand where an integer begins. The slow path reads a zero there: only the integer 0 may begin with it.
		if notDigits(digits) != commas || begins&(commas|zeros(digits)) != 0 {
			break
		}
		begins = commas >> 56
	}
	return start + bytes.LastIndexByte(data[start:i], ',') + 1
}

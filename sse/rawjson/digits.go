package rawjson

import (
	"bytes"
	"encoding/binary"
	"math/bits"
)

// Lists of integers are most of what engines answer: the ids of a prompt, and of its blocks. Here they are read eight bytes at a time. A
// loop over digits mispredicts the end of nearly every id and takes four times as long.

const (
	everyByte = 0x0101010101010101
	highBits  = 0x8080808080808080
)

// load returns the eight bytes from data[i] on, the first one lowest. The second bound spares the check that a slice does not begin at
// the end of its array, on which the place of the next id would wait.
func load(data []byte, i int) uint64 { return binary.LittleEndian.Uint64(data[i : i+8 : i+8]) }

// plainEnd returns eight times how many digits a word begins with, and something below eight; or anything, if it does not begin with a
// plain id. Of digits and commas, digits have bit 4. Of no digits, plainDigits has what is none.
func plainEnd(word uint64) int {
	return bits.TrailingZeros64(word&(everyByte<<4>>8) ^ everyByte<<4)
}

// plainDigits returns the digits of a plain id that ends at end, the last one highest, as numbers.
func plainDigits(word uint64, end int) uint64 {
	return (word ^ everyByte*'0') << ((64 - end&^7) & 63)
}

// isPlain reports whether a word begins with an id of one to seven digits that a comma follows at once, which are all but the last one of
// an engine's list; end and digits are what it would have.
func isPlain(word uint64, end int, digits uint64) bool {
	return notDigits(digits) == 0 && byte(word>>(end&0x38)) == ',' && (byte(word) != '0' || end < 16)
}

// notDigits marks the high bit of each byte of a word that is above nine, and perhaps of bytes above such a one.
func notDigits(word uint64) uint64 { return (word + everyByte*(0x7f-9) | word) & highBits }

// zeros marks the high bit of each byte of a word that is zero.
func zeros(word uint64) uint64 { return ^(word&^highBits + ^uint64(highBits) | word) & highBits }

// decimal returns the number whose digits are the bytes of word, the last one highest.
func decimal(word uint64) uint32 {
	word = (word*10 + word>>8) & 0x00ff00ff00ff00ff
	word = (word*100 + word>>16) & 0x0000ffff0000ffff
	return uint32(word*10000 + word>>32)
}

// digitsOf returns the digits of a number below 10^8 as text, the first one lowest, and how many they are. Divisions by 10 and 100 are
// multiplications of all parts at once, exact for parts of so many digits; one digit after the other takes five times as long.
func digitsOf(n uint32) (text uint64, size int) {
	word := uint64(n/10000) | uint64(n%10000)<<32
	hundreds := word * 10486 >> 20 & 0x0000007f0000007f
	word = hundreds | (word-100*hundreds)<<16
	tens := word * 103 >> 10 & 0x000f000f000f000f
	word = tens | (word-10*tens)<<8
	zeros := bits.TrailingZeros64(word|1<<56) &^ 7 // leading ones, but for the last digit
	return (word + everyByte*'0') >> zeros, 8 - zeros/8
}

// integers goes over the integers of an array whose first digit is at Pos, as long as there are nothing but digits and commas between
// them, and leaves Pos behind a comma, or where it was.
func (s *Scanner) integers() {
	data, i := s.Data, s.Pos
	begins := uint64(0x80) // the high bit of each byte that begins an integer: the first, and those behind commas
	for ; i+8 <= len(data); i += 8 {
		word := load(data, i)
		digits := word ^ everyByte*'0'
		commas := zeros(word ^ everyByte*',')
		begins |= commas << 8
		// A comma does not begin an integer, and a zero only one that has no other digit.
		if notDigits(digits) != commas || begins&(commas|zeros(digits)) != 0 {
			break
		}
		begins = commas >> 56
	}
	s.Pos += bytes.LastIndexByte(data[s.Pos:i], ',') + 1
}

package rawjson

import "bytes"

// integers goes over the integers of an array whose first digit is at Pos, eight bytes at a time and with nothing but digits and
// commas between them, and leaves Pos behind a comma, or where it was. Block ids and token ids are most of what engines answer.
func (s *Scanner) integers() {
	const ones, high = 0x0101010101010101, 0x8080808080808080
	data, i := s.Data, s.Pos
	begins := uint64(0x80) // the high bit of each byte that begins an integer: the first of data[i:], then those behind commas
	for ; i+8 <= len(data); i += 8 {
		word := load(data, i)
		value := word ^ ones*'0'
		others := notDigits(value)
		comma := word ^ ones*','
		commas := ^((comma&^high + ^uint64(high)) | comma) & high
		begins |= commas << 8
		// A comma must not begin an integer, and a zero begins one of more digits only where that is none.
		zeros := ^((value&^high + ^uint64(high)) | value) & high
		if others != commas || begins&(commas|zeros) != 0 {
			break
		}
		begins = commas >> 56
	}
	s.Pos += bytes.LastIndexByte(data[s.Pos:i], ',') + 1
}

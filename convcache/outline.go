package convcache

import "encoding/binary"

// outlineVersion begins the input from which the key of outlines is derived.
const outlineVersion byte = 6

// OutlineKey returns the key of all outlines under this secret.
func (s Secret) OutlineKey() ChainKey { return NewTagKey(s.Derive(outlineVersion, []byte("outline"))) }

// Outline returns what a ticket keeps of a request that is known by hashes of its parts: half of a keyed hash of each,
// made with the ticket's id. So a reader of the store sees neither what was written nor which requests have a part in common.
func (k ChainKey) Outline(id TicketID, parts []uint64) []uint32 {
	words := make([]uint32, 0, len(id)/4)
	for at := 0; at < len(id); at += 4 {
		words = append(words, binary.LittleEndian.Uint32(id[at:]))
	}
	outline := make([]uint32, len(parts))
	for i, part := range parts {
		outline[i] = uint32(sipHash(k, part, words, false))
	}
	return outline
}

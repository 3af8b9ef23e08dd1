package convcache

import "encoding/binary"

// kin is what a store needs to know of a ticket to tell which others it makes superfluous, as sameHistory
// and supersedes do, without seeing what the ticket covers: its numbers, and tags instead of hashes. Tags
// are made under a key of the conversation, so that equal prompts of different conversations look different.
type kin struct {
	history [tagSize]byte // zero if there is no history
	single  bool          // one block group
	size    uint32        // tokens per block
	blocks  uint32
	tokens  uint32
	last    uint64 // tag of all full blocks; 0 without any
	whole   uint64
	tagKey  ChainKey
}

const tagSize = 16

// kinOf returns a ticket's kin.
func (e envelope) kinOf(key Key, t *Ticket) kin {
	k := kin{
		single: t.Groups == 1, size: uint32(t.Chain.BlockSize), blocks: uint32(len(t.Chain.Blocks)), tokens: uint32(t.Chain.Tokens),
	}
	if t.History != (Digest{}) {
		copy(k.history[:], e.derive(place(key, TicketID{}, useText), t.History[:]))
	}
	sum := e.derive(place(key, TicketID{}, useTags))
	k.tagKey = ChainKey{k0: binary.BigEndian.Uint64(sum), k1: binary.BigEndian.Uint64(sum[8:])}
	if k.blocks > 0 {
		k.last = k.tag(lastOf(t.Chain.Blocks))
	}
	k.whole = sipHash(k.tagKey, t.Chain.Whole, nil, true)
	return k
}

// tag stands for the hash of a block, and with it for all blocks up to that one, because the hash does.
func (k kin) tag(hash uint64) uint64 { return sipHash(k.tagKey, hash, nil, false) }

// tags are those of the first, the first two, … all full blocks, as 8 big-endian bytes each: an older ticket of
// so many blocks has that tag as its last if this one contains it.
func (k kin) tags(c Chain) []byte {
	all := make([]byte, 0, 8*len(c.Blocks))
	for _, hash := range c.Blocks {
		all = binary.BigEndian.AppendUint64(all, k.tag(hash))
	}
	return all
}

// appendIndex appends the kin in the layout that redis_put.lua unpacks.
func (k kin) appendIndex(to []byte) []byte {
	to = append(to, k.history[:]...)
	single := byte(0)
	if k.single {
		single = 1
	}
	to = append(to, single)
	to = binary.BigEndian.AppendUint32(to, k.size)
	to = binary.BigEndian.AppendUint32(to, k.blocks)
	to = binary.BigEndian.AppendUint32(to, k.tokens)
	to = binary.BigEndian.AppendUint64(to, k.last)
	return binary.BigEndian.AppendUint64(to, k.whole)
}

package redisstore

import (
	"encoding/binary"

	"carryover/convcache"
)

// kin is what a store needs to know of a ticket to tell which others it makes superfluous, as convcache.Memory
// does, without seeing what the ticket covers: its numbers, and tags instead of hashes. Tags
// are made under a key of the conversation, so that equal prompts of different conversations look different.
type kin struct {
	note   bool
	size   uint32 // tokens per block
	blocks uint32
	tokens uint32
	last   uint64 // tag of all full blocks; 0 without any
	whole  uint64
	tagKey convcache.ChainKey
}

// kinOf returns a ticket's kin.
func (e envelope) kinOf(key convcache.Key, t *convcache.Ticket) kin {
	k := kin{
		note: t.HandedBack(), size: uint32(t.Chain.BlockSize), blocks: uint32(len(t.Chain.Blocks)), tokens: uint32(t.Chain.Tokens),
	}
	k.tagKey = convcache.NewTagKey(e.derive(place(key, convcache.TicketID{}, useTags)))
	if k.blocks > 0 {
		k.last = k.tagKey.Tag(t.Chain.Blocks[k.blocks-1], false)
	}
	k.whole = k.tagKey.Tag(t.Chain.Whole, true)
	return k
}

// tags are those of the first, the first two, … all full blocks, as 8 big-endian bytes each: an older ticket of
// so many blocks has that tag as its last if this one contains it. The tag of a block stands for all blocks up to that
// one, because its hash does.
func (k kin) tags(c convcache.Chain) []byte {
	all := make([]byte, 0, 8*len(c.Blocks))
	for _, hash := range c.Blocks {
		all = binary.BigEndian.AppendUint64(all, k.tagKey.Tag(hash, false))
	}
	return all
}

// appendIndex appends the kin in the layout that put.lua unpacks.
func (k kin) appendIndex(to []byte) []byte {
	note := byte(0)
	if k.note {
		note = 1
	}
	to = append(to, note)
	to = binary.BigEndian.AppendUint32(to, k.size)
	to = binary.BigEndian.AppendUint32(to, k.blocks)
	to = binary.BigEndian.AppendUint32(to, k.tokens)
	to = binary.BigEndian.AppendUint64(to, k.last)
	return binary.BigEndian.AppendUint64(to, k.whole)
}

package redisstore

import (
	"context"
	"encoding/binary"
	"fmt"

	"carryover/convcache"
)

// mostQuestions is how often a put is asked something before it is done: for tags once, and what outdates a note anew
// whenever another replica has put a ticket meanwhile.
const mostQuestions = 8

// Put keeps the ticket until its deadline as the newest branch of the conversation, and returns Stored, or Expired
// where less than a millisecond is left. One of the same id is replaced. What it removed is the caller's, as if taken:
// branches whose chain is contained in the ticket's, and the oldest of five. A note
// displaces notes only: it is Superseded, and not stored, if a branch outdates it or four tickets leave it no room.
//
// Nothing of a ticket larger than MaxValue is sent. After an error the ticket may have been stored, unless that is a
// convcache.RemoteError which says that nothing was applied.
func (s *Store) Put(ctx context.Context, key convcache.Key, t convcache.Ticket) ([]convcache.Ticket, convcache.Outcome, error) {
	life := t.Deadline.Sub(s.cfg.Now()).Milliseconds()
	if life <= 0 {
		return nil, convcache.Expired, nil
	}
	branch := s.envelope.close(key, t.ID, fieldBranch, encodeBranch(&t.Branch))
	params := s.envelope.close(key, t.ID, fieldParams, encodeParams(&t))
	if size := len(branch) + len(params); size > s.cfg.MaxValue {
		if s.lines.large.due(s.cfg.Now()) {
			s.cfg.Logger.Info("a ticket is too large for redis and stays in this process", "bytes", size, "most", s.cfg.MaxValue)
		}
		return nil, convcache.Refused, &convcache.RemoteError{
			Err: fmt.Errorf("%d bytes are more than is sent", size), Unapplied: true, Shows: convcache.ShowsNothing,
		}
	}
	kin := s.envelope.kinOf(key, &t)
	index := kin.appendIndex(t.ID[:])
	var tags, harmless []byte
	for range mostQuestions {
		reply, err := s.servers.run(ctx, s.scripts.put, s.names.of(key), index, branch, params, life, tags, harmless)
		if err != nil {
			return nil, convcache.Unavailable, err
		}
		switch answer := text(reply, 0); answer {
		case "stored":
			return s.displaced(key, reply[1:]), convcache.Stored, nil
		case "superseded":
			return nil, convcache.Superseded, nil
		case "tags":
			tags = kin.tags(t.Chain)
		case "others":
			ids, outdated := s.others(key, &t, reply[1:])
			if outdated {
				return nil, convcache.Superseded, nil
			}
			harmless = append(harmless, ids...)
		default:
			return nil, convcache.Unavailable, odd("%q to a put", answer)
		}
	}
	return nil, convcache.Unavailable, odd("a put with %d questions", mostQuestions)
}

// others reads the branches, two values each, that may outdate a note, and says whether one does, or the ids of all.
// What can't be read, or used any more, outdates nothing.
func (s *Store) others(key convcache.Key, note *convcache.Ticket, values []any) (ids []byte, outdated bool) {
	for ; len(values) >= 2; values = values[2:] {
		index := text(values, 0)
		if len(index) != indexSize {
			continue
		}
		id := convcache.TicketID([]byte(index[indexID : indexID+16]))
		there, err := s.envelope.openBranch(key, id, []byte(text(values, 1)))
		switch {
		case err != nil:
			s.lines.warnForged()
		case usableAt(there, s.cfg.Now()) && note.OutdatedBy(&there):
			return nil, true
		}
		ids = append(ids, id[:]...)
	}
	return ids, false
}

// displaced reads the tickets that a put took out, three values each. Whatever can't be used any more is
// dropped: its blocks are about to be freed without us.
func (s *Store) displaced(key convcache.Key, values []any) []convcache.Ticket {
	var tickets []convcache.Ticket
	for ; len(values) >= 3; values = values[3:] {
		index := text(values, 0)
		if len(index) != indexSize {
			continue
		}
		t, err := s.envelope.openTicket(key, convcache.TicketID([]byte(index[indexID:indexID+16])), text(values, 1), text(values, 2))
		if err != nil {
			s.lines.warnForged()
			continue
		}
		if usableAt(t.Branch, s.cfg.Now()) {
			tickets = append(tickets, t)
		}
	}
	return tickets
}

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

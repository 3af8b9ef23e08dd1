package redisstore

import (
	"context"
	"encoding/binary"
	"fmt"

	"carryover/convcache"
)

// mostQuestions bounds the answers of a put that ask for more: tags once, and for a note what outdates it, again after each put of another
// replica.
const mostQuestions = 8

// Put stores the ticket as the newest branch until its deadline, and returns Stored, or Expired with less than a millisecond left. It
// replaces a ticket with the same id. The displaced tickets belong to the caller, as if taken: contained branches, and the oldest of five. A
// note displaces only notes, and is Superseded if a branch outdates it or four tickets leave no room.
//
// A ticket larger than MaxValue is not sent. After any error without convcache.RemoteError.Unapplied the ticket may be stored.
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
			Err: fmt.Errorf("%d bytes exceed the largest ticket for redis", size), Unapplied: true, Shows: convcache.ShowsNothing,
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

// others reads the branches that may outdate a note, two values each. It reports whether one does, else the ids of all. Unreadable and
// expired branches outdate nothing.
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

// displaced reads the tickets that a put removed, three values each. It drops expired ones, because decode is about to free their blocks.
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

// kin is what the script needs to find superfluous tickets, as convcache.Memory does: numbers, and tags in place of hashes. Tags have a key
// per conversation, so that equal prompts of different conversations look different.
type kin struct {
	note   bool
	size   uint32 // tokens per block
	blocks uint32
	tokens uint32
	last   uint64 // tag of all full blocks; 0 if there are none
	whole  uint64
	tagKey convcache.ChainKey
}

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

// tags returns the tags of the first, the first two, … all full blocks, 8 big-endian bytes each. If this ticket contains an older one of n
// blocks, tag n equals the older one's last.
func (k kin) tags(c convcache.Chain) []byte {
	all := make([]byte, 0, 8*len(c.Blocks))
	for _, hash := range c.Blocks {
		all = binary.BigEndian.AppendUint64(all, k.tagKey.Tag(hash, false))
	}
	return all
}

// appendIndex appends the kin in the layout of put.lua.
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

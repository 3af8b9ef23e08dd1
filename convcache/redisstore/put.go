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
	return s.put(ctx, key, t, s.cfg.MaxValue)
}

func (s *Store) put(ctx context.Context, key convcache.Key, t convcache.Ticket, most int) ([]convcache.Ticket, convcache.Outcome, error) {
	life := t.Deadline.Sub(s.cfg.Now()).Milliseconds()
	if life <= 0 {
		return nil, convcache.Expired, nil
	}
	branch := s.envelope.close(key, t.ID, fieldBranch, encodeBranch(&t.Branch))
	params := s.envelope.close(key, t.ID, fieldParams, encodeParams(&t))
	if size := len(branch) + len(params); size > most {
		if s.lines.large.due(s.cfg.Now()) {
			s.cfg.Logger.Info("a ticket is too large for redis and stays in this process", "bytes", size, "most", most)
		}
		return nil, convcache.Refused, &convcache.RemoteError{
			Err: fmt.Errorf("%d bytes exceed the largest ticket for redis", size), Unapplied: true, Shows: convcache.ShowsNothing,
		}
	}
	tagKey := convcache.NewTagKey(s.envelope.derive(place(key, convcache.TicketID{}, useTags)))
	index := indexOf(&t, tagKey)
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
			tags = tagsOf(t.Chain, tagKey)
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
		id, ok := idIn(text(values, 0))
		if !ok {
			continue
		}
		there, err := s.envelope.openBranch(key, id, text(values, 1))
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
		id, ok := idIn(text(values, 0))
		if !ok {
			continue
		}
		t, err := s.envelope.openTicket(key, id, text(values, 1), text(values, 2))
		switch {
		case err != nil:
			s.lines.warnForged()
		case usableAt(t.Branch, s.cfg.Now()):
			tickets = append(tickets, t)
		}
	}
	return tickets
}

// indexOf returns the ticket's id and what the script needs to find superfluous tickets, as convcache.Memory does, in the layout of put.lua:
// numbers, and tags in place of hashes. The tags have a key per conversation, so that equal prompts of different conversations look different.
func indexOf(t *convcache.Ticket, tagKey convcache.ChainKey) []byte {
	note, last, c := byte(0), uint64(0), &t.Chain
	if t.HandedBack() {
		note = 1
	}
	if n := len(c.Blocks); n > 0 {
		last = tagKey.Tag(c.Blocks[n-1], false) // of all full blocks
	}
	index := append(t.ID[:], note)
	for _, n := range [...]int{c.BlockSize, len(c.Blocks), c.Tokens} {
		index = binary.BigEndian.AppendUint32(index, uint32(n))
	}
	index = binary.BigEndian.AppendUint64(index, last)
	return binary.BigEndian.AppendUint64(index, tagKey.Tag(c.Whole, true))
}

// tagsOf returns the tags of the first, the first two, … all full blocks, 8 big-endian bytes each. If this ticket contains an older one of n
// blocks, tag n equals the older one's last.
func tagsOf(c convcache.Chain, tagKey convcache.ChainKey) []byte {
	all := make([]byte, 0, 8*len(c.Blocks))
	for _, hash := range c.Blocks {
		all = binary.BigEndian.AppendUint64(all, tagKey.Tag(hash, false))
	}
	return all
}

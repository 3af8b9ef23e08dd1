package redisstore

import (
	"context"

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
		s.lines.tellLarge(size, s.cfg.MaxValue)
		return nil, convcache.Refused, tooLarge(size)
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

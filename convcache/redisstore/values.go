package redisstore

import (
	"slices"
	"strings"
	"time"

	"carryover/convcache"
)

// Where things are in an index, see shared.lua.
const (
	indexOrder = 53
	indexID    = 63
	indexSize  = 108
)

// maxSkew is how far ahead of this process' clock another replica's may be.
const maxSkew = 2 * time.Second

// branches appends what Peek got of a key to the branches of others: four indexes, then as many branches. expired says
// that some have passed their deadline.
func (s *Store) branches(to []convcache.KeyedBranch, key convcache.Key, values []any) (_ []convcache.KeyedBranch, expired bool) {
	type entry struct {
		order  string
		branch convcache.Branch
	}
	var entries []entry
	now := s.cfg.Now()
	for slot := range slots {
		index, _ := values[slot].(string)
		value, _ := values[slots+slot].(string)
		if len(index) != indexSize {
			continue
		}
		b, err := s.envelope.openBranch(key, convcache.TicketID([]byte(index[indexID:indexID+16])), []byte(value))
		switch {
		case err != nil:
			s.lines.warnForged()
		case !usableAt(b, now):
			expired = true
		default:
			entries = append(entries, entry{index[indexOrder:indexID], b})
		}
	}
	slices.SortFunc(entries, func(a, b entry) int { return strings.Compare(b.order, a.order) })
	to = slices.Grow(to, len(entries))
	for _, e := range entries {
		to = append(to, convcache.KeyedBranch{Key: key, Branch: e.branch})
	}
	return to, expired
}

// usableAt reports whether a ticket may still be handed out by this process' clock. One that was made in the
// future shows that clocks disagree, and then its deadline means nothing. What was read has a wall reading only.
func usableAt(b convcache.Branch, now time.Time) bool {
	return b.Deadline.After(now) && !b.FreshAsOf.After(now.Add(maxSkew))
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

// openBranch reads what a look-up may see of a ticket.
func (e envelope) openBranch(key convcache.Key, id convcache.TicketID, value []byte) (convcache.Branch, error) {
	payload, err := e.open(key, id, fieldBranch, value)
	if err != nil {
		return convcache.Branch{}, err
	}
	b, err := readBranch(payload)
	if err != nil {
		return convcache.Branch{}, err
	}
	b.ID = id
	return b, nil
}

// openTicket reads a whole ticket.
func (e envelope) openTicket(key convcache.Key, id convcache.TicketID, branch, params string) (convcache.Ticket, error) {
	b, err := e.openBranch(key, id, []byte(branch))
	if err != nil {
		return convcache.Ticket{}, err
	}
	payload, err := e.open(key, id, fieldParams, []byte(params))
	if err != nil {
		return convcache.Ticket{}, err
	}
	t := convcache.Ticket{Branch: b}
	if err := readParams(payload, &t); err != nil {
		return convcache.Ticket{}, err
	}
	return t, nil
}

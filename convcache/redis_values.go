package convcache

import (
	"slices"
	"strings"
	"time"
)

// Where things are in an index, see redis_shared.lua.
const (
	indexOrder = 53
	indexID    = 63
	indexSize  = 124
)

// maxSkew is how far ahead of this process' clock another replica's may be.
const maxSkew = 2 * time.Second

// branches reads what Peek got: four indexes, then as many branches.
func (r *Redis) branches(key Key, values []any) ([]Branch, Outcome) {
	type entry struct {
		order  string
		branch Branch
	}
	var entries []entry
	outcome := Empty
	now := r.cfg.Now()
	for slot := range maxBranches {
		index, _ := values[slot].(string)
		value, _ := values[maxBranches+slot].(string)
		if len(index) != indexSize {
			continue
		}
		t, err := r.openBranch(key, TicketID([]byte(index[indexID:indexID+16])), []byte(value))
		switch {
		case err != nil:
			r.warnForged()
		case !usableAt(t, now):
			outcome = Expired
		default:
			entries = append(entries, entry{index[indexOrder:indexID], t.Branch()})
		}
	}
	slices.SortFunc(entries, func(a, b entry) int { return strings.Compare(b.order, a.order) })
	branches := make([]Branch, len(entries))
	for i, e := range entries {
		branches[i] = e.branch
	}
	return branches, outcome
}

// usableAt says whether a ticket may still be handed out by this process' clock. One that was made in the
// future shows that clocks disagree, and then its deadline means nothing.
func usableAt(t Ticket, now time.Time) bool {
	return left(t.Deadline, now) > 0 && !t.CaughtUp.After(now.Add(maxSkew))
}

// displaced reads the tickets that a put took out, three values each. Whatever can't be used any more is
// dropped: its blocks are about to be freed without us.
func (r *Redis) displaced(key Key, values []any) []Ticket {
	var tickets []Ticket
	for ; len(values) >= 3; values = values[3:] {
		index := text(values, 0)
		if len(index) != indexSize {
			continue
		}
		t, err := r.openTicket(key, TicketID([]byte(index[indexID:indexID+16])), text(values, 1), text(values, 2))
		if err != nil {
			r.warnForged()
			continue
		}
		if usableAt(t, r.cfg.Now()) {
			tickets = append(tickets, t)
		}
	}
	return tickets
}

// openBranch reads what a look-up may see of a ticket.
func (r *Redis) openBranch(key Key, id TicketID, value []byte) (Ticket, error) {
	payload, err := r.envelope.open(key, id, fieldBranch, value)
	if err != nil {
		return Ticket{}, err
	}
	t, err := readBranch(payload)
	if err != nil {
		return Ticket{}, err
	}
	t.ID = id
	t.History = r.envelope.mask(key, id, t.History)
	return t, nil
}

// openTicket reads a whole ticket.
func (r *Redis) openTicket(key Key, id TicketID, branch, params string) (Ticket, error) {
	t, err := r.openBranch(key, id, []byte(branch))
	if err != nil {
		return Ticket{}, err
	}
	payload, err := r.envelope.open(key, id, fieldParams, []byte(params))
	if err != nil {
		return Ticket{}, err
	}
	if err := readParams(payload, &t); err != nil {
		return Ticket{}, err
	}
	return t, nil
}

// text is a value of a reply, empty if there is none.
func text(reply []any, at int) string {
	if at >= len(reply) {
		return ""
	}
	s, _ := reply[at].(string)
	return s
}

package e2e

import (
	"context"
	"sync"
	"time"

	"carryover/convcache"
	"carryover/upstream/fleet"
)

// tapped is a store that is watched, or that is another than it should be. Any of its functions may be nil.
type tapped struct {
	convcache.Store
	key    func() convcache.Key                                  // in place of the key that is asked for
	peeked func(branch *convcache.Branch)                        // each branch that a look-up shows
	takes  func(id convcache.TicketID) (*convcache.Ticket, bool) // a ticket that is handed out in the store's place
	taken  func(ticket *convcache.Ticket)                        // one that the store has handed out
	puts   func(ticket convcache.Ticket) (keeps bool)            // before one is kept, if it is
	kept   func(ticket convcache.Ticket, displaced *[]convcache.Ticket, outcome convcache.Outcome)
}

// Peek implements convcache.Store.
func (s *tapped) Peek(ctx context.Context, keys []convcache.Key) ([]convcache.KeyedBranch, convcache.Outcome) {
	if s.key != nil {
		keys = []convcache.Key{s.key()}
	}
	branches, outcome := s.Store.Peek(ctx, keys)
	for i := range branches {
		if s.peeked != nil {
			s.peeked(&branches[i].Branch)
		}
	}
	return branches, outcome
}

// Take implements convcache.Store.
func (s *tapped) Take(ctx context.Context, key convcache.Key, id convcache.TicketID) (convcache.Ticket, convcache.Outcome) {
	if s.key != nil {
		key = s.key()
	}
	if s.takes != nil {
		if ticket, has := s.takes(id); has {
			return *ticket, convcache.Taken
		}
	}
	ticket, outcome := s.Store.Take(ctx, key, id)
	if s.taken != nil && outcome == convcache.Taken {
		s.taken(&ticket)
	}
	return ticket, outcome
}

// Put implements convcache.Store.
func (s *tapped) Put(ctx context.Context, key convcache.Key, ticket convcache.Ticket, ttl time.Duration) ([]convcache.Ticket, convcache.Outcome) {
	if s.key != nil {
		key = s.key()
	}
	if s.puts != nil {
		whole := ticket
		whole.Deadline = time.Now().Add(ttl)
		if !s.puts(whole) {
			return nil, convcache.Stored
		}
	}
	displaced, outcome := s.Store.Put(ctx, key, ticket, ttl)
	if s.kept != nil {
		s.kept(ticket, &displaced, outcome)
	}
	return displaced, outcome
}

// ledger knows the tickets of one or more stores.
type ledger struct {
	mu      sync.Mutex // guards tickets
	tickets map[convcache.TicketID]start
}

// start is a decode instance in one of its starts.
type start struct{ decode, id string }

// note adds a ticket. A note of a hand-back names no blocks.
func (l *ledger) note(ticket convcache.Ticket) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.tickets == nil {
		l.tickets = map[convcache.TicketID]start{}
	}
	if !ticket.HandedBack() {
		l.tickets[ticket.ID] = start{ticket.Decode.Instance, ticket.Decode.Incarnation}
	}
}

func (l *ledger) forget(tickets ...convcache.Ticket) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, ticket := range tickets {
		delete(l.tickets, ticket.ID)
	}
}

// unread has the ledger know of each ticket that was kept whether it was ever handed out. The blocks of those that were not stay pinned.
func (l *ledger) unread(store convcache.Store) convcache.Store {
	return &tapped{Store: store, taken: func(ticket *convcache.Ticket) { l.forget(*ticket) }, kept: func(ticket convcache.Ticket, _ *[]convcache.Ticket, outcome convcache.Outcome) {
		if outcome == convcache.Stored {
			l.note(ticket)
		}
	}}
}

// live has the ledger know which tickets a store has. Another replica may take one before this one knows that it is stored.
func (l *ledger) live(store convcache.Store) convcache.Store {
	return &tapped{
		Store: store, taken: func(ticket *convcache.Ticket) { l.forget(*ticket) },
		puts: func(ticket convcache.Ticket) bool { l.note(ticket); return true },
		kept: func(ticket convcache.Ticket, displaced *[]convcache.Ticket, outcome convcache.Outcome) {
			if l.forget(*displaced...); outcome != convcache.Stored {
				l.forget(ticket)
			}
		},
	}
}

// unused counts the tickets.
func (l *ledger) unused() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.tickets)
}

// of counts the tickets of the starts that are alive.
func (l *ledger) of(alive map[start]*fleet.Incarnation) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, at := range l.tickets {
		if alive[at] != nil {
			n++
		}
	}
	return n
}

package server_test

import (
	"context"
	"sync/atomic"
	"testing"

	"carryover/convcache"
	"carryover/server"
	"carryover/upstream"
)

// reads counts how often a connector reads what decode has answered.
type reads struct {
	upstream.Connector
	t    *testing.T
	kept atomic.Int32
}

func (c *reads) Plan(ctx context.Context, t upstream.Transfer) (upstream.Plan, error) {
	if t.Offer.Ticket != nil && t.Offer.Reading == nil {
		c.t.Error("a ticket is offered without what was read of it")
	}
	return c.Connector.Plan(ctx, t)
}

func (c *reads) ParseTicket(final []byte, blockSize int) (upstream.TicketParams, error) {
	c.kept.Add(1)
	return c.Connector.ParseTicket(final, blockSize)
}

// remoteStore gives tickets as another replica would get them.
type remoteStore struct{ convcache.Store }

func (s remoteStore) Take(ctx context.Context, key convcache.Key, id convcache.TicketID) (convcache.Ticket, convcache.Outcome) {
	ticket, outcome := s.Store.Take(ctx, key, id)
	ticket.Reading = nil
	return ticket, outcome
}

// What decode answers is read once when it is kept, and once more where it comes from outside of this process.
func TestReading_TicketsAreReadOnce(t *testing.T) {
	for name, row := range map[string]struct {
		remote bool
		want   int32
	}{"of this process": {false, 3}, "of another replica": {true, 5}} {
		t.Run(name, func(t *testing.T) {
			c := &reads{t: t}
			r := newRig(t, setup{deps: func(d *server.Deps) {
				c.Connector, d.Connector = d.Connector, c
				if row.remote {
					d.Store = remoteStore{d.Store}
				}
			}})
			r.wantOK(r.turn("c", 1, true), "miss;")
			r.wantOK(r.turn("c", 2, true), "hit;")
			r.wantOK(r.turn("c", 3, true), "hit;")
			r.wantStored(3, "yes")
			if kept := c.kept.Load(); kept != row.want {
				t.Errorf("three answers and two hits: read %d times, want %d", kept, row.want)
			}
		})
	}
}

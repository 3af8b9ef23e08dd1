package server_test

import (
	"context"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"carryover/convcache"
	"carryover/server"
	"carryover/server/pins"
)

// On loopback, bytes are in the other end's socket when the write returns.
func TestTurn_ATicketIsAsOldAsTheFirstByteOfTheEnd(t *testing.T) {
	t.Parallel()
	ways(t, func(t *testing.T, stream bool) {
		puts, finished := &putLog{}, make(chan time.Time, 1)
		r := newRig(t, setup{deps: func(d *server.Deps) { puts.Store, d.Store = d.Store, puts }})
		r.decode[0].next(func(w http.ResponseWriter, _ *http.Request, l leg) {
			media, before, end := "application/json", "", wholeAnswer(l)+`,"kv_transfer_params":`+ticket(l)+`}`
			if stream {
				media, before, end = "text/event-stream", frames(firstEvents(3)(l)...), frames(chatEvents(l)[3:]...)
			}
			w.Header().Set("Content-Type", media)
			for i, piece := range []string{before + end[:100], end[100:120], end[120:]} {
				if i > 0 {
					<-time.After(40 * time.Millisecond)
				}
				_, _ = io.WriteString(w, piece)
				_ = http.NewResponseController(w).Flush()
				if i == 0 {
					finished <- time.Now()
				}
			}
		})
		began := time.Now()
		r.wantOK(r.turn("c", 1, stream), "miss;")
		tickets, end := puts.tickets(), <-finished // the put is done before the end of the answer shows
		if len(tickets) != 1 || tickets[0].FreshAsOf.After(end) || tickets[0].FreshAsOf.Before(began) {
			t.Errorf("got tickets %v, want one between %v and %v", tickets, began, end)
		}
	})
}

// late hands out a ticket that decode may free a moment from now, in spite of the margin.
type late struct {
	convcache.Store
	next atomic.Bool // ticket that is taken
}

func (s *late) Take(ctx context.Context, key convcache.Key, id convcache.TicketID) (convcache.Ticket, convcache.Outcome) {
	ticket, outcome := s.Store.Take(ctx, key, id)
	if s.next.CompareAndSwap(true, false) {
		ticket.Deadline = time.Now().Add(soonOver - pins.MarginWithExpiry + pins.TicketSlack)
	}
	return ticket, outcome
}

func TestTurn_ALegEndsBeforeDecodeMayFreeItsTicket(t *testing.T) {
	t.Parallel()
	store := &late{}
	r := newRig(t, setup{deps: func(d *server.Deps) { store.Store, d.Store = d.Store, store }})
	r.wantOK(r.turn("c", 1, true), "miss;")
	r.prefill[0].next(silent)
	store.next.Store(true)
	began := time.Now()
	r.wantOK(r.turn("c", 2, true), "miss;reason=retried_without_ticket")
	if took := time.Since(began); took > patience/2 {
		t.Errorf("took %v", took)
	}
	// That the ticket ended says nothing about the link.
	r.wantOK(r.turn("c", 3, true), "hit;")
}

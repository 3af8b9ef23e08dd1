package server_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"carryover/convcache"
	"carryover/server"
	"carryover/server/pins"
)

// pieces are what an engine writes one by one, each after a while. finish is the
// number of the one that shows the end of decode.
type pieces struct {
	media  string
	all    []string
	finish int
}

// write plays them, and says when the finish had arrived: on loopback, bytes are in
// the other end's socket when the write returns.
func (p pieces) write(w http.ResponseWriter, finished chan<- time.Time) {
	w.Header().Set("Content-Type", p.media)
	for i, piece := range p.all {
		if i > 0 {
			<-time.After(40 * time.Millisecond)
		}
		_, _ = io.WriteString(w, piece)
		_ = http.NewResponseController(w).Flush()
		if i == p.finish {
			finished <- time.Now()
		}
	}
}

func TestTurn_ATicketIsAsOldAsTheFirstByteOfTheEnd(t *testing.T) {
	t.Parallel()
	thirds := func(s string) []string { return []string{s[:len(s)/3], s[len(s)/3 : 2*len(s)/3], s[2*len(s)/3:]} }
	finishInPieces := func(l leg) pieces {
		events := chatEvents(l)
		parts := thirds(frames(events[3]))
		return pieces{"text/event-stream", []string{frames(events[0], events[1]), frames(events[2]), parts[0], parts[1], parts[2], frames(events[4:]...)}, 2}
	}
	paramsAfterwards := func(l leg) pieces {
		events := chatEvents(l)
		return pieces{"text/event-stream", []string{
			frames(events[0], events[1], events[2]), frames(chunk(l, `{}`, `"stop"`)), frames(`{"id":"chatcmpl-` + l.id() + `","choices":[],"usage":` + chatUsage(l) + `}`),
			frames(`{"id":"chatcmpl-` + l.id() + `","choices":[],"kv_transfer_params":` + ticket(l) + `}`), frames("[DONE]"),
		}, 1}
	}
	whole := func(l leg) pieces {
		return pieces{"application/json", thirds(wholeAnswer(l) + `,"kv_transfer_params":` + ticket(l) + `}`), 0}
	}
	for name, tc := range map[string]struct {
		stream bool
		answer func(leg) pieces
	}{
		"finish event in pieces":  {true, finishInPieces},
		"params after the finish": {true, paramsAfterwards},
		"whole":                   {false, whole},
	} {
		t.Run(name, func(t *testing.T) {
			puts := &putLog{}
			r := newRig(t, setup{deps: func(d *server.Deps) { puts.Store, d.Store = d.Store, puts }})
			finished := make(chan time.Time, 1)
			r.decode[0].next(func(w http.ResponseWriter, _ *http.Request, l leg) { tc.answer(l).write(w, finished) })
			began := time.Now()
			if p := r.turn("c", 1, tc.stream); p.err != nil || !strings.Contains(p.body, "world") {
				t.Fatalf("got %v, %s", p.err, p.body)
			}
			tickets := puts.tickets() // the put is done before the end of the answer shows
			if len(tickets) != 1 {
				t.Fatalf("got %d puts, want 1", len(tickets))
			}
			freshAsOf, end := tickets[0].FreshAsOf, <-finished
			if freshAsOf.After(end) || freshAsOf.Before(began) {
				t.Errorf("fresh as of %v after the finish had arrived, %v after the turn began", freshAsOf.Sub(end), freshAsOf.Sub(began))
			}
		})
	}
}

// late hands out a ticket that decode may free a moment from now, in spite of the margin.
type late struct {
	server.Store
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

// paused is a process that stands still while a ticket is on its way to the store. It tells what is stored then.
type paused struct {
	server.Store
	clock  atomic.Int64 // how long it has stood still
	stored chan convcache.Branch
}

func (s *paused) now() time.Time { return time.Now().Add(time.Duration(s.clock.Load())) }

func (s *paused) Put(ctx context.Context, key convcache.Key, ticket convcache.Ticket, ttl time.Duration) ([]convcache.Ticket, convcache.Outcome) {
	s.clock.Store(int64(time.Minute))
	displaced, outcome := s.Store.Put(ctx, key, ticket, ttl)
	branches, _ := s.Peek(ctx, []convcache.Key{key})
	s.stored <- branches[0].Branch
	return displaced, outcome
}

func TestTurn_APauseBeforeThePutMakesNoTicketYounger(t *testing.T) {
	store := &paused{stored: make(chan convcache.Branch, 1)}
	store.Store = convcache.NewMemory(convcache.MemoryConfig{Now: store.now})
	r := newRig(t, setup{deps: func(d *server.Deps) { d.Store = store }})
	began := time.Now()
	r.wantOK(r.turn("c", 1, true), "miss;")
	took := time.Since(began)
	branch := <-store.stored
	if life := branch.Deadline.Sub(began); life > 450*time.Second+took {
		t.Errorf("the ticket may be used for %v after the turn began, want 450s and what the turn took, %v", life, took)
	}
}

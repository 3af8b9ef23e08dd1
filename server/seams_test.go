package server_test

import (
	"cmp"
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"carryover/convcache"
	"carryover/upstream"
)

// storeSeam lets a test step in before a method of a Store; nil steps aside.
type storeSeam struct {
	convcache.Store
	peek func(ctx context.Context)
	take func(ctx context.Context) (convcache.Outcome, bool)
	put  func(ctx context.Context) (convcache.Outcome, bool)
}

func (s *storeSeam) Peek(ctx context.Context, keys []convcache.Key) ([]convcache.KeyedBranch, convcache.Outcome) {
	if s.peek != nil {
		s.peek(ctx)
	}
	return s.Store.Peek(ctx, keys)
}

func (s *storeSeam) Take(ctx context.Context, key convcache.Key, id convcache.TicketID) (convcache.Ticket, convcache.Outcome) {
	if s.take != nil {
		if outcome, instead := s.take(ctx); instead {
			return convcache.Ticket{}, outcome
		}
	}
	return s.Store.Take(ctx, key, id)
}

func (s *storeSeam) Put(ctx context.Context, key convcache.Key, t convcache.Ticket, ttl time.Duration) ([]convcache.Ticket, convcache.Outcome) {
	if s.put != nil {
		if outcome, instead := s.put(ctx); instead {
			return nil, outcome
		}
	}
	return s.Store.Put(ctx, key, t, ttl)
}

// putLog is a store that remembers the tickets it was given.
type putLog struct {
	convcache.Store
	mu  sync.Mutex // guards all
	all []convcache.Ticket
}

func (p *putLog) Put(ctx context.Context, key convcache.Key, t convcache.Ticket, ttl time.Duration) ([]convcache.Ticket, convcache.Outcome) {
	p.mu.Lock()
	p.all = append(p.all, t)
	p.mu.Unlock()
	return p.Store.Put(ctx, key, t, ttl)
}

func (p *putLog) tickets() []convcache.Ticket {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.all)
}

// legsSeam lets a test step in around the legs. Rescues may run behind their turn, so that their seam is set before the program starts.
type legsSeam struct {
	upstream.Legs
	beforePrefill, afterPrefill, beforeDecode func(ctx context.Context)
	beforeRescue                              func(ctx context.Context)
}

// stepAside lets the legs of turns run as they are.
func (e *legsSeam) stepAside() { e.beforePrefill, e.afterPrefill, e.beforeDecode = nil, nil, nil }

func (e *legsSeam) Prefill(ctx context.Context, l upstream.Leg) (upstream.PrefillAnswer, error) {
	if strings.HasSuffix(l.RequestID, "-rescue") {
		call(e.beforeRescue, ctx)
		return e.Legs.Prefill(ctx, l)
	}
	call(e.beforePrefill, ctx)
	answer, err := e.Legs.Prefill(ctx, l)
	call(e.afterPrefill, ctx)
	return answer, err
}

func (e *legsSeam) Decode(ctx context.Context, l upstream.Leg, limits upstream.Limits) (*upstream.Stream, error) {
	call(e.beforeDecode, ctx)
	return e.Legs.Decode(ctx, l, limits)
}

func call(f func(context.Context), ctx context.Context) {
	if f != nil {
		f(ctx)
	}
}

// shortLegs gives the next leg of a role less time: settings would also bound the legs that engines answer, and these take long on a busy
// machine.
type shortLegs struct {
	upstream.Legs
	next atomic.Pointer[shortLimits]
}

// shortLimits are time limits of one leg.
type shortLimits struct {
	prefill         error // why prefill's leg ends, nil for a leg to decode
	firstByte, idle time.Duration
}

// Prefill implements upstream.Legs.
func (e *shortLegs) Prefill(ctx context.Context, l upstream.Leg) (upstream.PrefillAnswer, error) {
	if short := e.next.Load(); short != nil && short.prefill != nil && e.next.CompareAndSwap(short, nil) {
		limited, cancel := context.WithTimeoutCause(ctx, soonOver, short.prefill)
		defer cancel()
		ctx = limited
	}
	return e.Legs.Prefill(ctx, l)
}

// Decode implements upstream.Legs.
func (e *shortLegs) Decode(ctx context.Context, l upstream.Leg, limits upstream.Limits) (*upstream.Stream, error) {
	if short := e.next.Load(); short != nil && short.prefill == nil && e.next.CompareAndSwap(short, nil) {
		limits.FirstByte, limits.Idle = cmp.Or(short.firstByte, limits.FirstByte), cmp.Or(short.idle, limits.Idle)
	}
	return e.Legs.Decode(ctx, l, limits)
}

// connectorSeam lets a test step in before the methods of a Connector.
type connectorSeam struct {
	upstream.Connector
	prefillParams func(ticket []byte) error
	decodeParams  func()
	keep          func() error
}

func (c *connectorSeam) Plan(ctx context.Context, transfer upstream.Transfer) (upstream.Plan, error) {
	if c.prefillParams != nil {
		if err := c.prefillParams(transfer.Offer.Ticket); err != nil {
			return upstream.Plan{}, err
		}
	}
	plan, err := c.Connector.Plan(ctx, transfer)
	handover := plan.Handover
	plan.Handover = func(answer upstream.PrefillAnswer) (*upstream.Handover, error) {
		if c.decodeParams != nil {
			c.decodeParams()
		}
		return handover(answer)
	}
	return plan, err
}

func (c *connectorSeam) ParseTicket(final []byte, blockSize int) (upstream.TicketParams, error) {
	if c.keep != nil {
		if err := c.keep(); err != nil {
			return upstream.TicketParams{}, err
		}
	}
	return c.Connector.ParseTicket(final, blockSize)
}

// bodyReads says when the server begins to read a request's body.
type bodyReads struct {
	io.ReadCloser
	once  *sync.Once
	begun chan struct{} // closed at the first read of the first body
}

func (b *bodyReads) watch(next http.Handler) http.Handler {
	b.once = &sync.Once{}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = &bodyReads{r.Body, b.once, b.begun}
		next.ServeHTTP(w, r)
	})
}

func (b *bodyReads) Read(p []byte) (int, error) {
	b.once.Do(func() { close(b.begun) })
	return b.ReadCloser.Read(p)
}

// contexts hands out the context of each request that comes in, as net/http made it.
func contexts(to chan<- context.Context) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			to <- r.Context()
			next.ServeHTTP(w, r)
		})
	}
}

package storetime

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"carryover/convcache"
)

// Without a limit an operation has no deadline, and goes on when the client leaves.
func TestLimit_None(t *testing.T) {
	client, leave := context.WithCancel(t.Context())
	ctx, end := Limit(client, 0)
	leave()
	end()
	if _, ok := ctx.Deadline(); ok || ctx.Err() != nil {
		t.Errorf("deadline %v, error %v, want neither", ok, ctx.Err())
	}
}

// The time of a store operation ends at its limit or with the operation, and not with the client, whatever is asked of it and in which order.
func TestLimit_Ends(t *testing.T) {
	type ctxKey struct{}
	limit := 5 * time.Millisecond
	for _, asked := range []struct {
		name string
		ask  func(ctx context.Context)
	}{
		{"not asked", func(context.Context) {}},
		{"asked for Done", func(ctx context.Context) { ctx.Done() }},
		{"asked for Err", func(ctx context.Context) { _ = ctx.Err() }},
		{"a context is made of it", func(ctx context.Context) { _, cancel := context.WithCancel(ctx); t.Cleanup(cancel) }},
	} {
		t.Run(asked.name, func(t *testing.T) {
			for _, tc := range []struct {
				name string
				end  func(leave, end context.CancelFunc)
				want error
			}{
				{"goes on", func(leave, _ context.CancelFunc) { leave(); <-time.After(4 * time.Millisecond) }, nil},
				{"limit", func(_, _ context.CancelFunc) { <-time.After(5 * time.Millisecond) }, context.DeadlineExceeded},
				{"end", func(_, end context.CancelFunc) { end() }, context.Canceled},
			} {
				synctest.Test(t, func(t *testing.T) {
					client, leave := context.WithCancel(context.WithValue(t.Context(), ctxKey{}, "value"))
					defer leave()
					ctx, end := Limit(client, limit)
					defer end()
					if until, ok := ctx.Deadline(); !ok || time.Until(until) != limit {
						t.Errorf("%s: deadline in %v, %v, want %v", tc.name, time.Until(until), ok, limit)
					}
					asked.ask(ctx)
					tc.end(leave, end)
					synctest.Wait()
					if cause := context.Cause(ctx); !errors.Is(cause, tc.want) { // before one is made of it
						t.Errorf("%s: cause %v, want %v", tc.name, cause, tc.want)
					}
					child, cancel := context.WithCancel(ctx)
					defer cancel()
					for range 2 {
						if !errors.Is(ctx.Err(), tc.want) || !errors.Is(context.Cause(ctx), tc.want) || !errors.Is(child.Err(), tc.want) {
							t.Errorf("%s: error %v, cause %v, error of one made of it %v, want %v", tc.name, ctx.Err(), context.Cause(ctx), child.Err(), tc.want)
						}
						<-time.After(time.Second) // what has ended does not end anew
						if tc.want == nil {
							break
						}
						end()
					}
					if ctx.Value(ctxKey{}) != "value" {
						t.Errorf("%s: the client's values are lost", tc.name)
					}
				})
			}
		})
	}
}

// A context that is made of one whose time goes on ends with it.
func TestLimit_EndsWhatIsMadeOfIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := time.Second
		ctx, end := Limit(t.Context(), limit)
		defer end()
		child, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		began := time.Now()
		<-child.Done()
		if took := time.Since(began); took != time.Second || !errors.Is(child.Err(), context.DeadlineExceeded) {
			t.Errorf("it ended after %v with %v, want %v after a second", took, child.Err(), context.DeadlineExceeded)
		}
	})
}

// stalled is a store that answers when its context ends.
type stalled struct{ convcache.Store }

func (stalled) Peek(ctx context.Context, _ []convcache.Key) ([]convcache.KeyedBranch, convcache.Outcome) {
	<-ctx.Done()
	return nil, convcache.Unavailable
}

func (stalled) Take(ctx context.Context, _ convcache.Key, _ convcache.TicketID) (convcache.Ticket, convcache.Outcome) {
	<-ctx.Done()
	return convcache.Ticket{}, convcache.Unavailable
}

func (stalled) Put(ctx context.Context, _ convcache.Key, _ convcache.Ticket, _ time.Duration) ([]convcache.Ticket, convcache.Outcome) {
	<-ctx.Done()
	return nil, convcache.Unavailable
}

// Each operation of the store has the limit for itself, even if the client has left before.
func TestStore_BoundsEachOperation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, began := Store{Store: stalled{}, Limit: time.Second}, time.Now()
		client, leave := context.WithCancel(t.Context())
		leave()
		_, peeked := s.Peek(client, nil)
		_, taken := s.Take(client, convcache.Key{}, convcache.TicketID{})
		_, put := s.Put(client, convcache.Key{}, convcache.Ticket{}, time.Hour)
		if took := time.Since(began); took != 3*time.Second || peeked != convcache.Unavailable || taken != convcache.Unavailable || put != convcache.Unavailable {
			t.Errorf("took %v, want 3s", took)
		}
	})
}

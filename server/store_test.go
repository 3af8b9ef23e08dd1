package server_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"carryover/convcache"
	"carryover/server"
)

func TestPut_IsDoneBeforeTheEndShows(t *testing.T) {
	ways(t, func(t *testing.T, stream bool) {
		putting, gate, stored := make(chan struct{}), make(chan struct{}), atomic.Bool{}
		seam := &storeSeam{put: func(context.Context) (convcache.Outcome, bool) {
			close(putting)
			<-gate
			stored.Store(true)
			return 0, false
		}}
		r := newRig(t, setup{cfg: func(c *server.Config) { c.StoreTimeout = patience }, deps: func(d *server.Deps) { seam.Store, d.Store = d.Store, seam }})
		done := make(chan bool, 1)
		go func() {
			r.wantOK(r.turn("c", 1, stream), "miss;")
			done <- stored.Load()
		}()
		<-putting
		select {
		case <-done:
			t.Error("the client has the end of the answer before the ticket is stored")
		case <-time.After(50 * time.Millisecond): // the end would be there in less than one
		}
		close(gate)
		<-done
	})
}

// afterCall is the turn that brings the result of a tool call.
const afterCall = `{"model":"m","conversation_id":"c","messages":[{"role":"user","content":"q"},{"role":"assistant","content":null,"tool_calls":[{"id":"t1","type":"function","function":{"name":"f","arguments":"{\"a\": 1}"}}]},{"role":"tool","tool_call_id":"t1","content":"2"}]}`

// A store that was not asked, because no time was left for it, has not got the ticket: decode's blocks are released.
func TestPut_WithoutTimeIsNoPut(t *testing.T) {
	r := newRig(t, setup{cfg: func(c *server.Config) { releasing(c); c.StoreTimeout = time.Nanosecond }})
	r.wantOK(r.turn("c", 1, true), "miss;")
	r.wantStored(1, "not_stored")
	r.shot()
	r.wantCarried(1, left(r.decode[0].seen()[0]))
}

// unseen is a store that does not answer look-ups in their time.
type unseen struct{ convcache.Store }

func (unseen) Peek(context.Context, []convcache.Key) ([]convcache.KeyedBranch, convcache.Outcome) {
	return nil, convcache.Unavailable
}

// Every operation has a time limit, and one that has no answer by then costs a miss.
func TestStore_OneThatHangsCostsAMiss(t *testing.T) {
	ways(t, func(t *testing.T, stream bool) {
		seam := &storeSeam{}
		r := newRig(t, setup{deps: func(d *server.Deps) { seam.Store, d.Store = d.Store, seam }})
		r.wantOK(r.turn("c", 1, stream), "miss;")
		over := func(ctx context.Context) (convcache.Outcome, bool) {
			if at, bounded := ctx.Deadline(); !bounded || time.Until(at) > patience {
				t.Errorf("it has until %v, %t", at, bounded)
			}
			return convcache.Unavailable, true
		}
		store := seam.Store
		seam.Store, seam.peek = unseen{store}, func(ctx context.Context) { over(ctx) }
		r.wantOK(r.turn("c", 2, stream), "miss;reason=store_unavailable")
		seam.Store, seam.take = store, over
		r.wantOK(r.turn("c", 2, stream), "miss;reason=store_unavailable")
		seam.take, seam.put = nil, over
		r.wantOK(r.turn("d", 1, stream), "miss;")
		r.until(func() bool { return r.lines() == 4 })
		if n := r.log.count(`"stored":"unavailable"`); n != 1 {
			t.Errorf("got %d turns that say that the store was unavailable, want 1", n)
		}
		seam.put = nil // the failed takes began no trial that would never end
		r.wantOK(r.turn("c", 2, stream), "hit;")
	})
}

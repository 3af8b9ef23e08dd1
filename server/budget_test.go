package server_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"

	"carryover/convcache"
	"carryover/server"
)

// crowded is a rig whose decode instance has a cache for less than a ticket.
func crowded(t *testing.T, deps func(*server.Deps)) *rig {
	t.Helper()
	r := newRig(t, setup{cfg: func(c *server.Config) { releasing(c); c.PinnedShare = 0.5 }, deps: deps})
	r.tell(r.decode[0], func(w http.ResponseWriter, _ *http.Request, _ leg) {
		_, _ = fmt.Fprintf(w, "process_start_time_seconds %s\nvllm:cache_config_info{block_size=\"%d\",num_gpu_blocks=\"2\"} 1\n", rigIncarnation, rigBlock)
	})
	r.engine(r.decode[0]).Refresh(t.Context())
	return r
}

// A store that does not answer loses one ticket and not all.
func TestBudget_StopsWhereTheStoreDoesNotAnswer(t *testing.T) {
	seam := &storeSeam{}
	r := crowded(t, func(d *server.Deps) { seam.Store, d.Store = d.Store, seam })
	for _, conversation := range []string{"a", "b", "c"} {
		r.wantOK(r.turn(conversation, 1, true), "miss;")
	}
	r.wantStored(3, "yes")
	takes := 0
	seam.take = func(context.Context) (convcache.Outcome, bool) { takes++; return convcache.Unavailable, true }
	r.server.MakeRoom(t.Context())
	if takes != 1 {
		t.Errorf("the store was asked %d times, want once", takes)
	}
	seam.take = nil
	r.server.MakeRoom(t.Context())
	if n := r.store.Len(); n != 1 { // the one whose take was not answered ends with its time
		t.Errorf("%d tickets are in the store, want 1", n)
	}
}

// Giving up a ticket that no instance can release costs its reuse and frees nothing.
func TestBudget_KeepsWhatCannotBeReleased(t *testing.T) {
	r := crowded(t, nil)
	r.shot()
	r.prefill[0].next(status(500, "x"))
	r.server.ReleaseOne(t.Context(), r.engine(r.decode[0])) // the pair releases nothing for a while
	r.shot()
	r.wantOK(r.turn("c", 1, true), "miss;")
	r.wantStored(3, "yes")
	r.server.MakeRoom(t.Context())
	if n := r.store.Len(); n != 1 {
		t.Errorf("%d tickets are in the store, want 1", n)
	}
	r.wantOK(r.turn("c", 2, true), "hit;")
}

package server_test

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"

	"carryover/server"
)

// Credentials count for themselves once an engine that checks them has accepted them; those that anybody can invent count together.
func TestAccounts_OfCredentials(t *testing.T) {
	for _, checks := range []bool{true, false} {
		r := newRig(t, setup{cfg: func(c *server.Config) { c.MaxPerTenant = 1; forwards(c) }})
		var questions atomic.Int32
		says, want := listing("m"), http.StatusTooManyRequests
		if checks {
			says, want = status(http.StatusUnauthorized, "no"), http.StatusOK
		}
		r.decode[0].strangers = func(w http.ResponseWriter, q *http.Request, l leg) {
			defer questions.Add(1)
			says(w, q, l)
		}
		good := func() reply { return r.turn("", 1, true, "Authorization", "Bearer good") }
		r.wantOK(good(), "miss;")
		r.until(func() bool { return questions.Load() == 1 })
		gate := make(chan struct{})
		r.decode[0].next(waits(gate, decodes))
		go func() { r.turn("", 1, true, "Authorization", "Bearer invented") }()
		r.decode[0].await(2)
		r.until(func() bool { return good().status == want }) // the answer to the question may not have been read yet
		r.wantError(r.turn("", 1, true, "Authorization", "Bearer another"), http.StatusTooManyRequests, "tenant_limit")
		if n := questions.Load(); n != 1 {
			t.Errorf("the engine was asked %d times whether it checks keys", n)
		}
		close(gate)
	}
}

// However many shapes of requests one account invents, those that are known stay.
func TestAccounts_InventedShapesTakeNoOthersPlace(t *testing.T) {
	t.Parallel()
	r := newRig(t, setup{})
	r.wantOK(r.turn("c", 1, true), "miss;")
	for n := range 1100 {
		r.send(plus(ask(fmt.Sprint("i", n), true, "q"), fmt.Sprintf(`,"chat_template_kwargs":{"k%d":1}`, n)))
	}
	r.wantOK(r.turn("c", 2, true), "hit;")
}

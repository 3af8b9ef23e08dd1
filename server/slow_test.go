package server_test

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"carryover/upstream"
	"carryover/upstream/fleet"
)

// inTurn picks one candidate after the other.
type inTurn struct{ n atomic.Int64 }

func (p *inTurn) Pick(candidates []upstream.Candidate, _ string) int {
	return int(p.n.Add(1)) % len(candidates)
}

// delayed does something a second later than others.
func delayed(act behaviour) behaviour {
	return func(w http.ResponseWriter, r *http.Request, l leg) {
		select {
		case <-time.After(time.Second):
			act(w, r, l)
		case <-r.Context().Done():
		}
	}
}

// tellsTokens is a prefill instance that tells how much of a prompt it has computed.
func tellsTokens(w http.ResponseWriter, _ *http.Request, l leg) {
	params := strings.TrimSuffix(handover(l), "}") + `,"remote_prefill_cached_tokens":100}`
	answerJSON(w, `{"id":"chatcmpl-`+l.id()+`","choices":[],"usage":{"prompt_tokens":180},"kv_transfer_params":`+params+`}`)
}

// round lets all engines be probed once, and the slow be judged.
func (r *rig) round() {
	r.t.Helper()
	ctx, cancel := context.WithCancel(r.t.Context())
	ended := make(chan struct{})
	before := map[*engine]int64{}
	for _, e := range append(r.prefill, r.decode...) {
		before[e] = e.checked.Load()
	}
	go func() {
		defer close(ended)
		_ = r.deps.Fleet.Run(ctx)
	}()
	for e, n := range before {
		r.until(func() bool { return e.checked.Load() > n })
	}
	cancel()
	<-ended
}

// What turns tell the fleet of engines is enough to find the slow one of each role.
func TestSlow_EnginesAreEjectedForTheTurnsTheyDelay(t *testing.T) {
	r := newRig(t, setup{prefills: 3, decodes: 3, fleet: func(c *fleet.Config) { c.Prefill, c.Decode = &inTurn{}, &inTurn{} }})
	for _, e := range r.prefill {
		e.always(tellsTokens)
	}
	r.prefill[1].always(delayed(tellsTokens))
	r.decode[1].always(func(w http.ResponseWriter, q *http.Request, l leg) {
		sayHeaders(w) // as vLLM does before it has computed anything
		delayed(decodes)(w, q, l)
	})
	for range 2 {
		var turns sync.WaitGroup
		for range 30 {
			turns.Go(func() {
				if p := r.turn("", 1, true); p.status != http.StatusOK {
					t.Errorf("got status %d: %s", p.status, p.body)
				}
			})
		}
		turns.Wait()
		r.round()
	}
	for _, engines := range [][]*engine{r.prefill, r.decode} {
		for i, e := range engines {
			if got, want := r.state(e), []string{"up", "ejected", "up"}[i]; got != want {
				t.Errorf("%s is %s, want %s", e.name, got, want)
			}
		}
	}
}

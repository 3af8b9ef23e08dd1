package server_test

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"carryover/server"
	"carryover/server/turn"
)

// onPrefillFailure says what becomes of a turn whose prefill leg failed.
func onPrefillFailure(policy turn.PrefillFailure) func(*server.Config) {
	return func(c *server.Config) { c.PrefillFailure = policy }
}

const failedAlone = "decode_only;reason=prefill_failed;tokens=2"

// prefillers permits the prefill instances of a rig, and notes what it was asked.
type prefillers struct {
	mu    sync.Mutex // guards the rest
	names map[string]string
	asked []string
}

// Admit implements server.Prefillers.
func (p *prefillers) Admit(hostPort string) (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked = append(p.asked, hostPort)
	if name, ok := p.names[hostPort]; ok {
		return name, nil
	}
	return "", errors.New("10.66.77.88 is not on the list")
}

// named makes a rig in front of which a scheduler names the prefill instance of each request: "p0:1", "p1:1" and so on.
func named(t *testing.T, s setup) (*rig, *prefillers) {
	t.Helper()
	p := &prefillers{names: map[string]string{"dead:1": "dead-0", "gone:1": "gone"}}
	for i := range max(1, s.prefills) {
		p.names["p"+string(rune('0'+i))+":1"] = "prefill-" + string(rune('0'+i))
	}
	s.deps = func(d *server.Deps) { d.Prefillers = p }
	return newRig(t, s), p
}

// schedulerHeader is as Envoy and net/http write the header's name.
const schedulerHeader = "X-Prefiller-Host-Port"

// As llm-d's sidecar does (pkg/sidecar/proxy/chat_completions.go): the first value counts, of lines and of a list, and none is decode
// alone.
func TestPrefiller_IsTheOneThatTheRequestNames(t *testing.T) {
	for _, values := range [][]string{nil, {""}, {"  "}, {"p1:1"}, {"p1:1,p0:1"}, {" p1:1 , p0:1"}, {"p1:1", "p0:1"}} {
		r, p := named(t, setup{prefills: 2})
		var header []string
		for _, value := range values {
			header = append(header, schedulerHeader, value)
		}
		asked, legs, path := "", 0, "decode_only;reason=no_prefiller;tokens=2"
		if strings.Contains(strings.Join(values, ""), "p1") {
			asked, legs, path = "p1:1", 1, "prefill_decode;tokens=2"
		}
		r.wantPath(r.turn("c", 1, true, header...), path)
		r.prefill[0].wantLegs(0)
		r.prefill[1].wantLegs(legs)
		if got := strings.Join(p.asked, " "); got != asked {
			t.Errorf("%q: asked for %q, want %q", values, got, asked)
		}
		for _, l := range slices.Concat(r.prefill[1].seen(), r.decode[0].seen()) {
			if len(l.header[schedulerHeader]) != 0 || (l.params() == nil) != (legs == 0) {
				t.Errorf("%q: an engine got the header %q, or %s", values, l.header[schedulerHeader], l.body)
			}
		}
	}
}

func TestPrefiller_ThatIsNotPermittedGetsNoLeg(t *testing.T) {
	r, p := named(t, setup{})
	e := r.wantError(r.turn("c", 1, true, schedulerHeader, "10.66.77.88:1"), http.StatusForbidden, "prefiller_not_allowed")
	if e.Message != "The prefill instance that the request names is not permitted." {
		t.Errorf("got message %q", e.Message)
	}
	r.wantUntouched()
	if n := r.log.count("is not on the list"); n == 0 {
		t.Error("no log line says why")
	}
	// What is refused for its own sake names no instance.
	r.wantError(r.send(`{"n":"x"}`, schedulerHeader, "p0:1"), http.StatusBadRequest, "invalid_type")
	if len(p.asked) != 1 {
		t.Errorf("asked for %q, want the first only", p.asked)
	}
}

func TestPrefiller_HeaderMeansNothingWhereNoneIsNamed(t *testing.T) {
	r := newRig(t, setup{prefills: 2})
	r.wantPath(r.turn("c", 1, true, schedulerHeader, "10.66.77.88:1"), "prefill_decode;tokens=2")
	r.wantPath(r.turn("d", 1, true), "prefill_decode;tokens=2")
}

func TestPrefiller_ThatCannotServe(t *testing.T) {
	for _, policy := range []turn.PrefillFailure{"", turn.PrefillDecodeOnly, turn.PrefillError} {
		for _, value := range []string{"dead:1", "gone:1"} {
			r, _ := named(t, setup{deadPrefills: 1, cfg: onPrefillFailure(policy)})
			p := r.turn("c", 1, true, schedulerHeader, value)
			if policy == turn.PrefillError {
				r.wantError(p, http.StatusServiceUnavailable, "prefill_unavailable")
				wantRetryAfter(t, p, "1")
			} else {
				r.wantPath(p, "decode_only;reason=prefill_unavailable;tokens=2")
			}
			r.prefill[0].wantLegs(0)
		}
	}
	r, _ := named(t, setup{prefills: 2})
	r.prefill[0].always(status(500, "boom"))
	r.wantPath(r.turn("c", 1, true, schedulerHeader, "p0:1"), failedAlone)
	r.quarantine(r.prefill[1])
	r.wantPath(r.turn("c", 1, true, schedulerHeader, "p1:1"), "decode_only;reason=prefill_quarantined;tokens=2")
	if p0, p1, legs := r.prefill[0].seen(), r.prefill[1].seen(), r.decode[0].seen(); len(p0) != 1 || len(p1) != 0 || len(legs) != 2 || legs[1].params() != nil {
		t.Errorf("got %d and %d prefill legs, %d of decode alone, want 1, 0 and 2", len(p0), len(p1), len(legs))
	}
	r, _ = named(t, setup{prefills: 2})
	r.prefill[0].next(hangUp) // nobody else may be tried
	r.wantPath(r.turn("c", 1, true, schedulerHeader, "p0:1"), "prefill_decode;tokens=2")
}

// A conversation is carried over from turn to turn, whichever instance the scheduler names.
func TestPrefiller_TicketsAreReused(t *testing.T) {
	ways(t, func(t *testing.T, stream bool) {
		r, _ := named(t, setup{prefills: 2})
		r.wantOK(r.turn("c", 1, stream, schedulerHeader, "p0:1"), "miss;reason=first_turn")
		r.wantOK(r.turn("c", 2, stream, schedulerHeader, "p1:1"), "hit;")
		r.wantPath(r.turn("c", 3, stream), "decode_only;reason=no_prefiller;tokens=13")
		r.wantOK(r.turn("c", 4, stream, schedulerHeader, "p0:1"), "hit;")
		if legs := r.prefill[1].seen(); len(legs) != 1 || legs[0].ticket() == "" {
			t.Errorf("got %d legs on the second instance, want one with the ticket", len(legs))
		}
	})
}

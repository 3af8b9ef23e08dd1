package server_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"carryover/server"
	"carryover/server/explain"
	"carryover/upstream"
	"carryover/upstream/fleet"
	"carryover/upstream/fleet/pairs"
)

// taught is a rig with known incarnations and template, and a conversation of three turns.
func taught(t *testing.T, s setup) *rig {
	t.Helper()
	s.probeless = true
	r := newRig(t, s)
	for n := range 3 {
		r.turn("c", n+1, true)
	}
	return r
}

func TestExplain_TheWayThatATurnGoes(t *testing.T) {
	t.Run("too little for a hand-over", func(t *testing.T) {
		r := taught(t, setup{cfg: func(c *server.Config) { c.DisaggThreshold = 10_000 }})
		said := r.agree(chatPath, ask("c", true, history(4)...), "miss;reason=bypass")
		if said.Path.Reason != "disagg_threshold" || !strings.Contains(said.Sentence, "--disagg-threshold") || said.Hint == "" || said.Prefill != nil || said.Decode == nil {
			t.Errorf("explained as %+v", said)
		}
	})
	t.Run("no prefill instance", func(t *testing.T) {
		r := taught(t, setup{})
		r.without(r.prefill[0])
		said := r.agree(chatPath, ask("c", true, history(4)...), "miss;reason=bypass")
		if said.Path.Reason != "prefill_unavailable" {
			t.Errorf("explained as %+v", said)
		}
	})
	t.Run("a pair on trial", func(t *testing.T) {
		r := taught(t, setup{prefills: 2})
		fresh := r.engine(r.prefill[1])
		fresh.Refresh(t.Context())
		r.without(r.prefill[0])
		pairState := fresh.Last().PairWith(r.engine(r.decode[0]).Last())
		if pairState.Begin() != pairs.Trial {
			t.Fatal("the second prefill instance is not new to decode")
		}
		r.turn("teacher", 1, true)
		r.turn("teacher", 2, true) // its template is known then
		said := r.agree(chatPath, ask("c", true, history(4)...), "miss;reason=pair_on_trial")
		if said.Pair != "busy" || said.Tickets[0].Pair != "busy" || said.Tickets[0].Usable {
			t.Errorf("explained as %+v", said)
		}
		pairState.End(pairs.Inconclusive)
		if said := r.explain(chatPath, ask("d", true, history(4)...)); said.Pair != "trial" {
			t.Errorf("explained as %+v", said)
		}
	})
	t.Run("no room", func(t *testing.T) {
		r := taught(t, setup{})
		r.deps.Fleet.Picker.SetMaxInFlight(1)
		_, done, err := r.deps.Fleet.Picker.Pick(upstream.RoleDecode, fleet.Hint{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer done()
		said := r.explain(chatPath, ask("c", true, history(4)...))
		if said.Verdict != explain.VerdictEngines || !said.Queue.Busy || said.Error != nil || len(said.Tickets) != 1 {
			t.Errorf("explained as %+v", said)
		}
	})
	t.Run("a model that no engine serves", func(t *testing.T) {
		r := taught(t, setup{})
		r.deps.Fleet.Catalogue.Refresh(t.Context())
		said := r.explain(chatPath, strings.Replace(ask("c", true, history(4)...), `"m"`, `"other"`, 1))
		if said.Verdict != explain.VerdictRefused || said.Error.Code != "model_not_found" || said.Error.Status != http.StatusNotFound {
			t.Errorf("explained as %+v, %+v", said, said.Error)
		}
	})
}

// A prefill instance that requests name is added to the fleet by turns, and never by explaining one.
func TestExplain_AdmitsNoPrefillInstance(t *testing.T) {
	r, p := named(t, setup{prefills: 2, probeless: true})
	said := r.explain(chatPath, ask("c", true, history(1)...), schedulerHeader, "10.0.0.9:8100")
	if len(p.asked) != 0 {
		t.Errorf("%q were asked for", p.asked)
	}
	if said.Prefill != nil {
		t.Errorf("explained as %+v", said)
	}
	said = r.explain(chatPath, ask("c", true, history(1)...))
	if said.Path == nil || said.Path.Reason != "no_prefiller" {
		t.Errorf("without a name: %+v", said)
	}
}

func TestExplain_ATenantThatIsNamedTwice(t *testing.T) {
	r := newRig(t, setup{probeless: true, cfg: func(c *server.Config) { c.TenantHeader = "X-Tenant" }})
	if said := r.explain(chatPath, ask("c", true, history(1)...), "X-Tenant", "a", "X-Tenant", "b"); said.Error == nil || said.Error.Code != "invalid_tenant" {
		t.Errorf("explained as %+v", said)
	}
	if said := r.explain(chatPath, ask("c", true, history(1)...), "x-tenant", "a"); said.Conversation.Tenant != "header" {
		t.Errorf("explained as %+v", said)
	}
}

// Requests are explained two at a time, and a body larger than a turn may have is refused.
func TestExplain_IsBounded(t *testing.T) {
	r := newRig(t, setup{probeless: true, cfg: func(c *server.Config) { c.MaxBodyBytes, c.MaxHeaderBytes = 1000, 1000 }})
	h := r.server.ExplainHandler()
	serve := func(body io.Reader) int {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/admin/explain", body))
		return w.Code
	}
	if got := serve(strings.NewReader(`{"body":"` + strings.Repeat("x", 4000) + `"}`)); got != http.StatusRequestEntityTooLarge {
		t.Errorf("a large body: status %d", got)
	}
	ended := make(chan int, 2) // one status each
	var writers []*io.PipeWriter
	for range 2 {
		body, writer := io.Pipe()
		writers = append(writers, writer)
		go func() { ended <- serve(body) }()
		if _, err := writer.Write([]byte(`{"body":`)); err != nil { // it is being read
			t.Fatal(err)
		}
	}
	if got := serve(strings.NewReader(`{"body":{}}`)); got != http.StatusServiceUnavailable {
		t.Errorf("a third at once: status %d", got)
	}
	for _, writer := range writers {
		_, _ = writer.Write([]byte(`{"messages":[]}}`)) // the reader has it, or has failed and says so below
		_ = writer.Close()
		if got := <-ended; got != http.StatusOK {
			t.Errorf("one of the first two: status %d", got)
		}
	}
}

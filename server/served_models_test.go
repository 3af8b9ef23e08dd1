package server_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"carryover/upstream/fleet"
)

// listing is an engine that serves these models.
func listing(names ...string) behaviour {
	cards := make([]string, len(names))
	for i, name := range names {
		cards[i] = `{"id":"` + name + `","object":"model","max_model_len":4096,"x":1.0}`
	}
	return replyBody("application/json", `{"object":"list","data":[`+strings.Join(cards, ",")+`]}`)
}

// serving makes a rig of two decode instances that serve m, and n the second alone, as the server knows.
func serving(t *testing.T, s setup) (r *rig, later func()) {
	t.Helper()
	passed := time.Duration(0)
	s.decodes = 2
	s.fleet = func(c *fleet.Config) { c.Now = func() time.Time { return time.Now().Add(passed) } }
	s.probeless = true
	r = newRig(t, s)
	r.decode[0].models, r.decode[1].models = listing("m"), listing("m", "n")
	for _, e := range r.prefill {
		e.models = listing("m", "n")
	}
	r.deps.Fleet.Catalogue.Refresh(t.Context())
	return r, func() { passed += time.Minute }
}

func askFor(model string) string {
	return strings.Replace(ask("", false, "q"), `"model":"m"`, `"model":"`+model+`"`, 1)
}

func TestModels_TurnsGoWhereTheirModelIsServed(t *testing.T) {
	r, later := serving(t, setup{cfg: byTenant})
	r.wantOK(r.send(askFor("n")), "miss;")
	if first, second := len(r.decode[0].seen()), len(r.decode[1].seen()); first != 0 || second != 1 {
		t.Errorf("got %d and %d decode legs, want one where the model is", first, second)
	}
	// One that no list shows may be loaded when it is asked for. What an engine has refused is not asked again for five seconds.
	r.prefill[0].always(status(http.StatusNotFound, "no such adapter"))
	if e := r.wantError(r.send(askFor("x")), http.StatusNotFound, "invalid_request"); e.Message != "no such adapter" {
		t.Errorf("got %+v, want the engine's words", e)
	}
	e := r.wantError(r.send(askFor("x")), http.StatusNotFound, "model_not_found")
	if e.Message != "The model `x` does not exist." || e.Type != "NotFoundError" || e.Param == nil || *e.Param != "model" {
		t.Errorf("got %+v, want vLLM's words", e)
	}
	for i := range 20 { // one client's invented names are asked at a bounded rate, and another's are still asked
		r.wantError(r.send(askFor(fmt.Sprint("invented-", i))), http.StatusNotFound, map[bool]string{true: "invalid_request", false: "model_not_found"}[i < 7])
	}
	r.wantError(r.send(askFor("y"), "X-Tenant", "b"), http.StatusNotFound, "invalid_request")
	r.prefill[0].always(prefills)
	later()
	p := r.send(askFor("x"))
	r.wantOK(p, "miss;")
	r.wantPath(p, "prefill_decode;tokens=0")
}

// A model that prefill has refused is decode's alone, until prefill is asked again.
func TestModels_ThatPrefillDoesNotServe(t *testing.T) {
	r, later := serving(t, setup{})
	r.prefill[0].models = listing("m")
	r.prefill[0].next(status(http.StatusNotFound, "no"))
	later()
	r.deps.Fleet.Catalogue.Refresh(t.Context())
	for range 2 {
		r.wantPath(r.send(askFor("n")), "decode_only;reason=prefill_failed;tokens=0")
	}
	later()
	r.wantPath(r.send(askFor("n")), "prefill_decode;tokens=0")
	// Nor does prefill compute for a decode instance that has to be asked whether it loads the model.
	r.prefill[0].models = listing("m", "p")
	later()
	r.decode[0].next(status(http.StatusNotFound, "no"))
	r.wantError(r.send(askFor("p")), http.StatusNotFound, "invalid_request")
	if n := len(r.prefill[0].seen()); n != 2 {
		t.Errorf("got %d prefill legs, want the two before", n)
	}
}

func TestModels_ListsAreMerged(t *testing.T) {
	const m, n = `{"id":"m","object":"model","max_model_len":4096,"x":1.0}`, `{"id":"n","object":"model","max_model_len":4096,"x":1.0}`
	r, _ := serving(t, setup{})
	if p := r.get("/v1/models"); p.status != 200 || p.body != `{"object":"list","data":[`+m+`,`+n+`]}` {
		t.Errorf("got %d %s, want both models as the engines describe them", p.status, p.body)
	}
	// A client whose credential the engines judge sees them once one has let it in.
	r, _ = serving(t, setup{cfg: forwards})
	r.decode[0].models = func(w http.ResponseWriter, q *http.Request, l leg) {
		if q.Header.Get("Authorization") != "Bearer good" {
			status(401, "no")(w, q, l)
			return
		}
		listing("m")(w, q, l)
	}
	r.wantError(r.get("/v1/models"), 502, "upstream_auth")
	p := r.do(t.Context(), http.MethodGet, "/v1/models", nil, "Authorization", "Bearer good")
	if p.status != 200 || !strings.Contains(p.body, m+","+n) {
		t.Errorf("got %d %s, want both models", p.status, p.body)
	}
}

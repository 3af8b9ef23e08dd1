package fleet

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"carryover/upstream"
	"carryover/upstream/fleet/facts"
	"carryover/upstream/vllmsim"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// first picks the first candidate.
type first struct{}

func (first) Pick([]upstream.Candidate, string) int { return 0 }

// rig is a fleet whose clock the test moves, and which a slow machine cannot run out of
// time.
type rig struct {
	*Fleet
	t         *testing.T
	instances []upstream.Instance
	passed    atomic.Int64
}

func newRig(t *testing.T) *rig {
	t.Helper()
	client := upstream.NewClient(upstream.ClientConfig{DialTimeout: 2 * time.Second})
	t.Cleanup(client.Close)
	r := &rig{t: t}
	r.Fleet = New(Config{Client: client, Prefill: first{}, Decode: first{}, ReadLimit: time.Minute, AskLimit: time.Minute})
	r.Catalogue.listWait = time.Minute // a loaded machine needs longer than an engine may
	began := time.Now()
	r.cfg.Now = func() time.Time { return began.Add(time.Duration(r.passed.Load())) }
	return r
}

// pass moves the clock on.
func (r *rig) pass(d time.Duration) { r.passed.Add(int64(d)) }

// add adds an instance that has answered.
func (r *rig) add(role upstream.Role, name, url string) *Engine {
	r.t.Helper()
	e := r.unheard(role, name, url)
	e.Health.Heard()
	return e
}

// unheard adds an instance.
func (r *rig) unheard(role upstream.Role, name, url string) *Engine {
	r.t.Helper()
	instance, err := upstream.NewInstance(role, name, url)
	if err != nil {
		r.t.Fatal(err)
	}
	r.instances = append(r.instances, instance)
	r.Set(r.instances)
	return r.Engine(role, name)
}

// engineNamed adds an instance that is in good health.
func (r *rig) engineNamed(role upstream.Role, name string) *Engine {
	r.t.Helper()
	srv := httptest.NewServer(answers(http.StatusOK, ""))
	r.t.Cleanup(srv.Close)
	return r.add(role, name, srv.URL)
}

// engine adds an instance that an HTTP server stands for.
func (r *rig) engine(role upstream.Role, handler http.HandlerFunc) *Engine {
	r.t.Helper()
	srv := httptest.NewServer(handler)
	r.t.Cleanup(srv.Close)
	return r.add(role, "engine", srv.URL)
}

// simulate adds a simulated engine.
func (r *rig) simulate(role upstream.Role, change func(*vllmsim.Config)) (*vllmsim.Instance, *Engine) {
	r.t.Helper()
	cfg := vllmsim.DefaultConfig()
	if change != nil {
		change(&cfg)
	}
	sim, err := vllmsim.Start(cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		if err := sim.Close(); err != nil {
			r.t.Errorf("close: %v", err)
		}
	})
	return sim, r.add(role, "sim", sim.URL())
}

// names returns the instances of a role without asking where they are.
func (r *rig) named(role upstream.Role, names ...string) (engines []*Engine) {
	r.t.Helper()
	for _, name := range names {
		r.instances = append(r.instances, upstream.Instance{Name: name, BaseURL: "http://" + name, Role: role})
	}
	r.Set(r.instances)
	for _, name := range names {
		engines = append(engines, r.Engine(role, name))
		r.Engine(role, name).Health.Heard()
	}
	return engines
}

// tells makes an engine one of which a reading has just told this incarnation.
func tells(e *Engine, incarnation string) *Incarnation {
	e.mu.Lock()
	e.become(facts.Metrics{Incarnation: incarnation, BlockSize: 16})
	e.readings.missed = time.Time{}
	e.setRead(e.fleet.Now())
	e.mu.Unlock()
	return e.Fresh()
}

// incarnations returns an incarnation of a prefill engine and one of a decode engine, of one fleet.
func (r *rig) incarnations() (prefill, decode *Incarnation) {
	r.t.Helper()
	return tells(r.named(upstream.RolePrefill, "p")[0], "1"), tells(r.named(upstream.RoleDecode, "d")[0], "1")
}

func answerJSON(body string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, body)
	}
}

func answers(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// paths returns the paths that a simulated engine was asked for.
func paths(sim *vllmsim.Instance) (list []string) {
	for _, r := range sim.Requests() {
		list = append(list, r.Path)
	}
	return list
}

// up reports whether picks prefer the engine now.
func (e *Engine) up() bool { return e.Health.Up(e.fleet.clock()) }

// listOf is a list of models as engines answer with.
func listOf(ids ...string) string {
	cards := make([]string, len(ids))
	for i, id := range ids {
		cards[i] = fmt.Sprintf(`{"id":%q,"object":"model"}`, id)
	}
	return `{"object":"list","data":[` + strings.Join(cards, ",") + `]}`
}

// defective makes every request with its context a defect: to connect is to look for values.
func defective(ctx context.Context) context.Context { return defect{context.WithoutCancel(ctx)} }

type defect struct{ context.Context }

func (defect) Value(any) any { panic("defect") }

package facts

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"carryover/upstream"
	"carryover/upstream/body"
	"carryover/upstream/vllmsim"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig has what the facts of a fleet share, with a clock that the test moves.
type rig struct {
	Shared
	t      *testing.T
	passed atomic.Int64
}

func newRig(t *testing.T) *rig {
	t.Helper()
	client := upstream.NewClient(upstream.ClientConfig{DialTimeout: 2 * time.Second})
	t.Cleanup(client.Close)
	r := &rig{t: t, Shared: Shared{Client: client, AskLimit: time.Minute, Logger: slog.New(slog.DiscardHandler)}}
	began := time.Now()
	r.Now = func() time.Time { return began.Add(time.Duration(r.passed.Load())) }
	return r
}

// pass moves the clock on.
func (r *rig) pass(d time.Duration) { r.passed.Add(int64(d)) }

// engine is an engine, as facts see it.
type engine struct {
	rig      *rig
	instance upstream.Instance
	models   []Model
	last     *incarnation // the one that was read last, nil before the first and after Refused
}

func (e *engine) Instance() *upstream.Instance { return &e.instance }
func (e *engine) Models() []Model              { return e.models }

// Current reads the engine's incarnation.
func (e *engine) Current(ctx context.Context) *incarnation {
	e.rig.t.Helper()
	if e.last == nil {
		_, text, err := e.rig.Client.Fetch(ctx, &e.instance, "/metrics", "", MaxMetrics)
		if err != nil {
			e.rig.t.Fatal(err)
		}
		told, err := ReadMetrics(text, "")
		if err != nil {
			e.rig.t.Fatal(err)
		}
		tells(e, told.Incarnation)
	}
	return e.last
}

// Refused makes Current read again.
func (e *engine) Refused() { e.last = nil }

// Last returns the incarnation that was read last, one that is not known before.
func (e *engine) Last() *incarnation {
	if e.last == nil {
		return &incarnation{New(&e.rig.Shared, e, false), e, ""}
	}
	return e.last
}

// list reads the engine's list of models.
func (e *engine) list(ctx context.Context) {
	e.rig.t.Helper()
	_, list, err := e.rig.Client.Fetch(ctx, &e.instance, "/v1/models", "", MaxModelList)
	if err != nil {
		e.rig.t.Fatal(err)
	}
	if e.models = ParseModels(list); e.models == nil {
		e.rig.t.Fatal("no list of models")
	}
}

// incarnation is what is known of an incarnation, and its engine.
type incarnation struct {
	*All
	engine *engine
	id     string
}

// tells makes the engine one of which a reading has just told this incarnation.
func tells(e *engine, id string) *incarnation {
	if e.last == nil || e.last.id != id || id == "" {
		e.last = &incarnation{New(&e.rig.Shared, e, id != ""), e, id}
	}
	return e.last
}

// add adds an instance.
func (r *rig) add(role upstream.Role, name, url string) *engine {
	r.t.Helper()
	instance, err := upstream.NewInstance(role, name, url)
	if err != nil {
		r.t.Fatal(err)
	}
	return &engine{rig: r, instance: instance}
}

// engine adds an instance that an HTTP server stands for.
func (r *rig) engine(role upstream.Role, handler http.HandlerFunc) *engine {
	r.t.Helper()
	srv := httptest.NewServer(handler)
	r.t.Cleanup(srv.Close)
	return r.add(role, "engine", srv.URL)
}

// incarnationOf returns an incarnation of a prefill engine that an HTTP server stands for.
func (r *rig) incarnationOf(handler http.HandlerFunc) *incarnation {
	r.t.Helper()
	return tells(r.engine(upstream.RolePrefill, handler), "1")
}

// simulate adds a simulated engine.
func (r *rig) simulate(role upstream.Role, change func(*vllmsim.Config)) (*vllmsim.Instance, *engine) {
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

// named returns instances of a role that nothing answers for.
func (r *rig) named(role upstream.Role, names ...string) (engines []*engine) {
	r.t.Helper()
	for _, name := range names {
		engines = append(engines, &engine{rig: r, instance: upstream.Instance{Name: name, BaseURL: "http://" + name, Role: role}})
	}
	return engines
}

// incarnations returns an incarnation of a prefill engine and one of a decode engine.
func (r *rig) incarnations() (prefill, decode *incarnation) {
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

func recordedText(tb testing.TB, name string) []byte {
	tb.Helper()
	raw, err := os.ReadFile(filepath.Join("..", "..", "..", "testdata", "exchanges", "vllm-0.32", name))
	if err != nil {
		tb.Fatal(err)
	}
	return raw
}

// recorded returns the body of a recorded answer.
func recorded(tb testing.TB, name string) string {
	tb.Helper()
	var e struct {
		Response struct {
			JSON json.RawMessage `json:"json"`
		} `json:"response"`
	}
	if err := json.Unmarshal(recordedText(tb, name), &e); err != nil {
		tb.Fatal(err)
	}
	return string(e.Response.JSON)
}

func mustParse(tb testing.TB, api body.API, raw string) *body.Request {
	tb.Helper()
	r, err := body.ParseRequest(api, []byte(raw))
	if err != nil {
		tb.Fatalf("parse %.80s: %v", raw, err)
	}
	return r
}

const oneMessage = `"messages":[{"role":"user","content":"hi"}]`

// Renders says whether prompts of an API can be rendered, by the fleet's renderer or by the engine; Unknown before either was asked.
func (p *Prompts) Renders(api body.API) Finding { return p.renderer().renders(api, p.shared.Now()) }

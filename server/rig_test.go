package server_test

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"carryover/convcache"
	"carryover/server"
	"carryover/server/request"
	"carryover/server/turn"
	"carryover/upstream"
	"carryover/upstream/connector/nixl"
	"carryover/upstream/fleet"
)

// setup says what a rig is made of. The zero value is one prefill and one decode instance.
type setup struct {
	prefills, decodes         int // scripted engines of a role, 1 if 0
	deadPrefills, deadDecodes int // instances before them that refuse connections; -1 for nothing else
	cfg                       func(*server.Config)
	deps                      func(*server.Deps)
	fleet                     func(*fleet.Config)
	probeless                 bool          // nothing is read of engines but by turns
	doors                     bool          // scripted engines are reached through doors
	named                     bool          // and these by name
	dial                      time.Duration // of connections to engines, patience if 0
	front                     func(http.Handler) http.Handler
}

// rig is a server between a client and scripted engines. When its test ends it checks what must hold in every test.
type rig struct {
	t       *testing.T
	prefill []*engine
	decode  []*engine
	store   *convcache.Memory
	server  *server.Server
	deps    server.Deps
	front   *httptest.Server
	client  *http.Client
	log     *logBook

	refused   []string      // unused tickets whose first leg was refused, so that a second may name them
	committed chan struct{} // for a test to close when its client has headers
}

// inOrder picks the first candidate.
type inOrder struct{}

func (inOrder) Pick([]upstream.Candidate, string) int { return 0 }

// newFleet is a fleet of these instances. change may change how it is made.
func newFleet(client *upstream.Client, change func(*fleet.Config), instances ...upstream.Instance) *fleet.Fleet {
	cfg := fleet.Config{Client: client, Prefill: inOrder{}, Decode: inOrder{}, ReadLimit: patience, AskLimit: patience}
	if change != nil {
		change(&cfg)
	}
	f := fleet.New(cfg)
	f.Set(instances)
	return f
}

// newDeps is what a server works with in front of a fleet.
func newDeps(client *upstream.Client, f *fleet.Fleet, secret convcache.Secret) server.Deps {
	return server.Deps{
		Store: convcache.NewMemory(convcache.MemoryConfig{}), Fleet: f, Legs: client, Connector: nixl.Connector{}, Secret: secret,
	}
}

func newRig(t *testing.T, s setup) *rig {
	t.Helper()
	r := &rig{t: t, log: &logBook{}, committed: make(chan struct{}), store: convcache.NewMemory(convcache.MemoryConfig{})}
	var prefills, decodes []upstream.Instance
	r.prefill, prefills = newEngines(t, upstream.RolePrefill, s.prefills, s.deadPrefills)
	r.decode, decodes = newEngines(t, upstream.RoleDecode, s.decodes, s.deadDecodes)
	if s.doors {
		fitDoors(t, r.prefill, prefills, s.named)
		fitDoors(t, r.decode, decodes, s.named)
	}
	client := upstream.NewClient(upstream.ClientConfig{DialTimeout: cmp.Or(s.dial, patience), Key: "upstream-key"})
	t.Cleanup(client.Close)
	secret, err := convcache.NewSecret([]byte("0123456789abcdef"))
	if err != nil {
		t.Fatal(err)
	}
	cfg := defaults(r.log)
	limited := func(c *fleet.Config) {
		c.AskLimit, c.Logger = 2*time.Second, cfg.Logger
		if s.fleet != nil {
			s.fleet(c)
		}
	}
	deps := newDeps(client, newFleet(client, limited, append(prefills, decodes...)...), secret)
	deps.Store = r.store
	if s.deps != nil {
		s.deps(&deps)
	}
	r.deps = deps
	if !s.probeless {
		r.keepReading(deps)
		learnShapes(t.Context(), deps)
	}
	if s.cfg != nil {
		s.cfg(&cfg)
	}
	r.server = server.New(cfg, deps)
	handler := r.server.Handler()
	if s.front != nil {
		handler = s.front(handler)
	}
	r.front = httptest.NewUnstartedServer(handler)
	r.front.Config.ErrorLog = log.New(io.Discard, "", 0)
	r.front.Start()
	t.Cleanup(func() {
		r.front.Close()
		r.checkLegs()
		if r.log.count("table of states") > 0 {
			t.Errorf("a ticket's blocks changed as they never may; log ends with\n%s", r.log.end())
		}
		r.until(func() bool { n, clients := r.server.Inflight(); return n == 0 && clients == 0 }) // of legs without their client too
	})
	r.client = newClient(t)
	return r
}

// newEngines starts the engines of a role as a setup asks for them.
func newEngines(t *testing.T, role upstream.Role, alive, dead int) (engines []*engine, instances []upstream.Instance) {
	t.Helper()
	for i := range max(dead, -dead) {
		instances = append(instances, newInstance(t, role, fmt.Sprintf("dead-%d", i), deadURL(i)))
	}
	if dead < 0 {
		return nil, instances
	}
	for i := range max(alive, 1) {
		e := newEngine(t, role, fmt.Sprintf("%s-%d", role, i))
		engines = append(engines, e)
		instances = append(instances, newInstance(t, role, e.name, e.server.URL))
	}
	return engines, instances
}

// keepReading reads which start of each engine is alive, as the prober does, until the test ends.
func (r *rig) keepReading(deps server.Deps) {
	ctx, cancel := context.WithCancel(context.Background())
	var reading sync.WaitGroup
	for _, role := range []upstream.Role{upstream.RolePrefill, upstream.RoleDecode} {
		for _, engine := range deps.Fleet.Engines(role) {
			engine.Refresh(ctx)
			reading.Go(func() {
				tick := time.NewTicker(time.Second)
				defer tick.Stop()
				for ctx.Err() == nil {
					engine.Refresh(ctx)
					select {
					case <-ctx.Done():
					case <-tick.C:
					}
				}
			})
		}
	}
	r.t.Cleanup(func() { cancel(); reading.Wait() })
}

// tell replaces what an engine answers at /metrics, and has what was read of it forgotten.
func (r *rig) tell(e *engine, metrics behaviour) {
	e.tells(metrics)
	engine := r.engine(e)
	engine.Refused()
	engine.Health.Answered()
}

// engine is what the server knows of a scripted engine.
func (r *rig) engine(e *engine) *fleet.Engine { return r.deps.Fleet.Engine(e.role, e.name) }

func newInstance(t *testing.T, role upstream.Role, name, url string) upstream.Instance {
	t.Helper()
	instance, err := upstream.NewInstance(role, name, url)
	if err != nil {
		t.Fatal(err)
	}
	instance.KVTTL = 480 * time.Second
	return instance
}

func newClient(t *testing.T) *http.Client {
	t.Helper()
	transport := &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 256}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

func defaults(book *logBook) server.Config {
	return server.Config{
		RoutingConfig: turn.RoutingConfig{PrefillFailure: turn.PrefillRetryOther},
		ReuseConfig:   server.ReuseConfig{ReuseMinTokens: 64, ReuseTrialTimeout: patience, TTL: 450 * time.Second},
		Config: request.Config{
			MaxBodyBytes: 1 << 20, ClientBodyTimeout: patience, Sources: []string{
				"conversation_id", "conversation", "header:X-Conversation-Id", "session_id", "header:X-Session-Id",
				"client_headers", "metadata",
			},
		},
		LimitConfig: server.LimitConfig{
			MaxInflightBytes: 1 << 30, MaxStreams: 1000, MaxConnections: 2000,
		},
		LegConfig: turn.LegConfig{
			PrefillTimeout: patience, HandoverBudget: patience, FirstByteTimeout: 2 * patience, AnswerTimeout: 2 * patience, IdleTimeout: patience, ClientWriteTimeout: patience,
		},
		TimeConfig: server.TimeConfig{StoreTimeout: patience, ShutdownGrace: patience, ClientHeaderTimeout: patience},
		Version:    "test", Logger: slog.New(slog.NewJSONHandler(book, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
}

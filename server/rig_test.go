package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"carryover/convcache"
	"carryover/server"
	"carryover/server/proof"
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
	still                     bool // nothing is read of engines but by turns
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
func newDeps(client *upstream.Client, f *fleet.Fleet, secret convcache.Secret, logger *slog.Logger) server.Deps {
	return server.Deps{
		Store: convcache.NewMemory(convcache.MemoryConfig{}), Fleet: f, Legs: client, Connector: nixl.Connector{}, Secret: secret,
		Tokens: proof.NewTokens(secret.ChainKey(), logger), History: proof.History{},
	}
}

func newRig(t *testing.T, s setup) *rig {
	t.Helper()
	r := &rig{t: t, log: &logBook{}, committed: make(chan struct{}), store: convcache.NewMemory(convcache.MemoryConfig{})}
	var prefills, decodes []upstream.Instance
	r.prefill, prefills = newEngines(t, upstream.RolePrefill, s.prefills, s.deadPrefills)
	r.decode, decodes = newEngines(t, upstream.RoleDecode, s.decodes, s.deadDecodes)
	client := upstream.NewClient(upstream.ClientConfig{DialTimeout: patience, Key: "upstream-key"})
	t.Cleanup(client.Close)
	secret, err := convcache.NewSecret([]byte("0123456789abcdef"))
	if err != nil {
		t.Fatal(err)
	}
	cfg := defaults(r.log)
	limited := func(c *fleet.Config) {
		c.AskLimit = 2 * time.Second
		if s.fleet != nil {
			s.fleet(c)
		}
	}
	deps := newDeps(client, newFleet(client, limited, append(prefills, decodes...)...), secret, cfg.Logger)
	deps.Store = r.store
	if s.deps != nil {
		s.deps(&deps)
	}
	r.deps = deps
	if !s.still {
		r.keepReading(deps)
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
		if n, clients := r.server.Inflight(); n != 0 || clients != 0 {
			t.Errorf("%d bytes of %d clients are still counted as in flight after the last turn", n, clients)
		}
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
	engine.Answered()
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
		Proof:       server.ProofHistory,
		ReuseConfig: server.ReuseConfig{ReuseMinTokens: 64, ReuseTrialTimeout: patience, TTL: 450 * time.Second},
		IdentityConfig: server.IdentityConfig{Sources: []string{
			"conversation_id", "conversation", "header:X-Conversation-Id", "session_id", "header:X-Session-Id",
			"client_headers", "metadata",
		}},
		LimitConfig: server.LimitConfig{
			MaxBodyBytes: 1 << 20, MaxInflightBytes: 64 << 20, MaxStreams: 1000, MaxConnections: 2000, MaxHeaderBytes: 32 << 10,
		},
		TimeConfig: server.TimeConfig{
			PrefillTimeout: patience, HandoverBudget: patience, FirstByteTimeout: 2 * patience, IdleTimeout: patience,
			StoreTimeout: patience, ShutdownGrace: patience, ClientWriteTimeout: patience, ClientHeaderTimeout: patience, ClientBodyTimeout: patience,
		},
		Version: "test", Logger: slog.New(slog.NewJSONHandler(book, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
}

// checkLegs checks what must hold whatever the test did: a ticket reaches one prefill leg and a hand-over one decode leg,
// ever; each leg has its own request id, an explicit length, and headers from the allow-list only.
func (r *rig) checkLegs() {
	tickets, handovers, ids := map[string]int{}, map[string]int{}, map[string]int{}
	for _, engines := range [][]*engine{r.prefill, r.decode} {
		for _, e := range engines {
			for _, l := range e.seen() {
				r.checkLeg(e, l)
				ids[e.role.String()+" "+l.id()]++
				switch p := l.params(); {
				case e.role == upstream.RolePrefill && p["remote_request_id"] != nil:
					tickets[l.ticket()]++
				case e.role == upstream.RoleDecode && p != nil:
					handovers[fmt.Sprint(p["remote_request_id"])]++
				}
			}
		}
	}
	for _, id := range r.refused {
		tickets[id]--
	}
	for what, counts := range map[string]map[string]int{"ticket": tickets, "hand-over": handovers, "request id": ids} {
		for name, n := range counts {
			if n != 1 {
				r.t.Errorf("%s %s was used %d times, want once", what, name, n)
			}
		}
	}
}

func (r *rig) checkLeg(e *engine, l leg) {
	for name := range l.header {
		switch name {
		case "Content-Type", "Content-Length", "Accept-Encoding", "User-Agent", "X-Request-Id", "Authorization":
		default:
			r.t.Errorf("%s saw header %s: %q, which is not on the allow-list", e.name, name, l.header[name])
		}
	}
	if l.length != int64(len(l.body)) || len(l.framing) > 0 {
		r.t.Errorf("%s saw a body of %d bytes framed as length %d, coding %q", e.name, len(l.body), l.length, l.framing)
	}
	p := l.params()
	if p == nil {
		return
	}
	if prefill := e.role == upstream.RolePrefill; p["do_remote_decode"] != prefill || p["do_remote_prefill"] == prefill {
		r.t.Errorf("%s got params for the other direction: %v", e.name, p)
	}
}

// reply is an answer as a client got it.
type reply struct {
	status int
	header http.Header
	body   string
	err    error // how reading the body ended, nil for a clean end
}

func (p reply) reuse() string {
	values := p.header["X-Kv-Reuse"] // Go's client canonicalises
	if len(values) != 1 {
		return fmt.Sprintf("%d values", len(values))
	}
	return values[0]
}

const chatPath, textPath = "/v1/chat/completions", "/v1/completions"

// ask returns a chat request: conversation id ("" for none) and texts that alternate between user and assistant.
func ask(conversation string, stream bool, texts ...string) string {
	type message struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	}
	request := map[string]any{"model": "m", "stream": stream}
	messages := make([]message, 0, len(texts))
	for i, text := range texts {
		messages = append(messages, message{[]string{"user", "assistant"}[i%2], text})
	}
	request["messages"] = messages
	if conversation != "" {
		request["conversation_id"] = conversation
	}
	b, _ := json.Marshal(request) // strings and bools always can be
	return string(b)
}

// send posts a chat request; header is names and values in turn.
func (r *rig) send(body string, header ...string) reply {
	r.t.Helper()
	return r.sendTo(chatPath, body, header...)
}

func (r *rig) sendTo(path, body string, header ...string) reply {
	r.t.Helper()
	return r.do(context.Background(), http.MethodPost, path, strings.NewReader(body), header...)
}

func (r *rig) get(path string) reply {
	r.t.Helper()
	return r.do(context.Background(), http.MethodGet, path, nil)
}

func (r *rig) do(ctx context.Context, method, path string, body io.Reader, header ...string) reply {
	r.t.Helper()
	resp, err := r.open(ctx, method, path, body, header...)
	if err != nil {
		return reply{err: err}
	}
	return r.rest(resp)
}

// rest reads what is left of an answer.
func (r *rig) rest(resp *http.Response) reply {
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return reply{resp.StatusCode, resp.Header, string(b), err}
}

func (r *rig) open(ctx context.Context, method, path string, body io.Reader, header ...string) (*http.Response, error) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(ctx, method, r.front.URL+path, body)
	if err != nil {
		r.t.Fatal(err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header[header[i]] = append(req.Header[header[i]], header[i+1])
	}
	return r.client.Do(req)
}

// turn sends the n-th turn of a conversation that is told faithfully, n from 1.
func (r *rig) turn(conversation string, n int, stream bool, header ...string) reply {
	r.t.Helper()
	return r.send(ask(conversation, stream, history(n)...), header...)
}

func history(n int) []string {
	texts := []string{"question 1"}
	for i := 2; i <= n; i++ {
		texts = append(texts, "Hello world", fmt.Sprintf("question %d", i))
	}
	return texts
}

// wantOK checks a complete answer and how it came by its prompt.
func (r *rig) wantOK(p reply, reuse string) {
	r.t.Helper()
	if p.status != http.StatusOK || p.err != nil {
		r.t.Fatalf("got status %d, err %v, body %q; want 200 and a clean end", p.status, p.err, p.body)
	}
	if !strings.HasPrefix(p.reuse(), reuse) {
		r.t.Errorf("got X-KV-Reuse %q, want %q", p.reuse(), reuse)
	}
	r.wantHeaders(p)
}

// wantError checks that an error is shaped as OpenAI's are and gives nothing away.
func (r *rig) wantError(p reply, status int, code string) errorBody {
	r.t.Helper()
	if p.err != nil {
		r.t.Fatalf("got %v, want status %d", p.err, status)
	}
	e := parseError(r.t, p.body)
	if p.status != status || e.Code != code {
		r.t.Errorf("got status %d, code %q (%s), want %d, %q", p.status, e.Code, e.Message, status, code)
	}
	if got := p.header.Get("Content-Type"); got != "application/json" {
		r.t.Errorf("got content type %q of an error", got)
	}
	if p.header.Get("X-Request-Id") == "" {
		r.t.Error("an error without X-Request-Id")
	}
	r.wantSealed(p)
	return e
}

// errorBody is OpenAI's error object.
type errorBody struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    string  `json:"code"`
}

func parseError(t *testing.T, body string) errorBody {
	t.Helper()
	var e struct {
		Error errorBody `json:"error"`
	}
	decoder := json.NewDecoder(strings.NewReader(body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&e); err != nil || e.Error.Message == "" || e.Error.Type == "" || e.Error.Code == "" {
		t.Fatalf("got error body %q (%v), want OpenAI's shape", body, err)
	}
	if !strings.Contains(body, `"param":`) {
		t.Errorf("got error body %q, want a param, if only null", body)
	}
	return e.Error
}

// wantSealed checks that nothing of the far side shows.
func (r *rig) wantSealed(p reply) {
	r.t.Helper()
	text := p.body + fmt.Sprint(p.header)
	for _, secret := range []string{"127.0.0.", engineHost, engineID, "dial tcp", "EOF", "context ", "goroutine", "prefill-0", "decode-0", "dead-"} {
		if strings.Contains(text, secret) {
			r.t.Errorf("the client sees %q in %s", secret, text)
		}
	}
}

func (r *rig) wantHeaders(p reply) {
	r.t.Helper()
	for _, name := range []string{"X-Request-Id", "X-Kv-Reuse", "Server-Timing"} {
		if len(p.header[name]) != 1 {
			r.t.Errorf("got %s %q, want one value", name, p.header[name])
		}
	}
}

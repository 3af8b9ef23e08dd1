package facts

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"carryover/logtest"
	"carryover/upstream"
	"carryover/upstream/body"
	"carryover/upstream/exchangetest"
	"carryover/upstream/vllmsim"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig has what the facts of a fleet share, with a clock that the test moves.
type rig struct {
	Shared
	t      *testing.T
	log    logtest.Log
	passed atomic.Int64
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t}
	r.Shared = Shared{Client: r.client(""), AskLimit: time.Minute, Logger: r.log.Logger()}
	began := time.Now()
	r.Now = func() time.Time { return began.Add(time.Duration(r.passed.Load())) }
	return r
}

// client returns a client with a key of ours.
func (r *rig) client(key string) *upstream.Client {
	client := upstream.NewClient(upstream.ClientConfig{DialTimeout: 2 * time.Second, Key: key})
	r.t.Cleanup(client.Close)
	return client
}

// pass moves the clock on.
func (r *rig) pass(d time.Duration) { r.passed.Add(int64(d)) }

// incarnation is what is known of an incarnation of an engine, which has the models that a test says.
type incarnation struct {
	*All
	rig      *rig
	instance upstream.Instance
	models   []Model
}

func (i *incarnation) Instance() *upstream.Instance { return &i.instance }
func (i *incarnation) Models() []Model              { return i.models }

// at returns an incarnation of an engine.
func (r *rig) at(url string, known bool) *incarnation {
	r.t.Helper()
	instance, err := upstream.NewInstance(upstream.RolePrefill, "engine", url)
	must(r.t, err)
	i := &incarnation{rig: r, instance: instance}
	i.All = New(&r.Shared, i, known)
	return i
}

// plain returns an incarnation that nothing answers for.
func plain(t *testing.T) *incarnation { return newRig(t).at("http://127.0.0.1:1", true) }

// next is the engine's next incarnation.
func (i *incarnation) next() *incarnation {
	next := i.rig.at(i.instance.BaseURL, true)
	next.models = i.models
	return next
}

// prompt asks for the ids of a body.
func (i *incarnation) prompt(api body.API, raw, authorization string) ([]uint32, error) {
	i.rig.t.Helper()
	prompt, err := i.Prompts.Read(i.rig.t.Context(), mustParse(i.rig.t, api, raw), authorization)
	return prompt.IDs, err
}

// soon is prompt where an engine may be late.
func (i *incarnation) soon(api body.API, raw string) ([]uint32, error) {
	i.rig.t.Helper()
	prompt, err := i.Prompts.ReadSoon(i.rig.t.Context(), mustParse(i.rig.t, api, raw), "")
	return prompt.IDs, err
}

// Renders says whether prompts of an API can be rendered, by the fleet's renderer or by the engine; Unknown before either was asked.
func (p *Prompts) Renders(api body.API) Finding { return p.renderer().renders(api, p.shared.Now()) }

// told are the answers of a fake engine. A key is what a path ends with and, after a space, what the request or its key has. An answer is a
// status and a body, or "breaks" or "hangs"; one that is "held" waits until the test lets it go. Without an answer it is a 404.
type told map[string]string

// asked is what an engine was asked.
type asked struct{ path, body, key string }

// fake is an incarnation whose engine answers as told.
type fake struct {
	*incarnation
	entered, leave chan struct{} // of held answers

	mu      sync.Mutex // guards the rest
	answers told
	all     []asked
}

func newFake(t *testing.T, answers told) *fake {
	t.Helper()
	return newRig(t).fake(answers)
}

func (r *rig) fake(answers told) *fake {
	r.t.Helper()
	f := &fake{answers: answers, entered: make(chan struct{}, 16), leave: make(chan struct{})}
	srv := httptest.NewServer(f)
	r.t.Cleanup(srv.Close)
	f.incarnation = r.at(srv.URL, true)
	return f
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	raw, _ := io.ReadAll(r.Body) // or net/http does not see that a client has gone
	q := asked{r.URL.Path, string(raw), r.Header.Get("Authorization")}
	answer, best := "404", ""
	f.mu.Lock()
	f.all = append(f.all, q)
	for key, told := range f.answers {
		end, part, _ := strings.Cut(key, " ")
		if strings.HasSuffix(q.path, end) && strings.Contains(q.body+q.key, part) && len(key) >= len(best) {
			answer, best = told, key
		}
	}
	f.mu.Unlock()
	if now, held := strings.CutPrefix(answer, "held "); held {
		f.entered <- struct{}{}
		<-f.leave
		answer = now
	}
	status, text, _ := strings.Cut(answer, " ")
	switch status {
	case "breaks":
		panic(http.ErrAbortHandler)
	case "hangs":
		<-r.Context().Done()
	default:
		code, _ := strconv.Atoi(status)
		w.WriteHeader(code)
		_, _ = io.WriteString(w, text)
	}
}

// then replaces what the engine answers.
func (f *fake) then(answers told) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answers = answers
}

// at returns what the engine was asked at paths that end so.
func (f *fake) got(end string) (all []asked) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, q := range f.all {
		if strings.HasSuffix(q.path, end) {
			all = append(all, q)
		}
	}
	return all
}

// paths are those that the engine was asked for.
func (f *fake) paths() string {
	var list []string
	for _, q := range f.got("") {
		list = append(list, q.path)
	}
	return strings.Join(list, " ")
}

// simulated is an incarnation of a simulated engine.
type simulated struct {
	*incarnation
	*vllmsim.Instance
}

func simulate(t *testing.T, change func(*vllmsim.Config)) *simulated {
	t.Helper()
	cfg := vllmsim.DefaultConfig()
	if change != nil {
		change(&cfg)
	}
	sim, err := vllmsim.Start(cfg)
	must(t, err)
	t.Cleanup(func() {
		if err := sim.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return &simulated{newRig(t).at(sim.URL(), true), sim}
}

// renders starts a simulated engine anew, which renders.
func (s *simulated) renders() {
	s.Restart()
	on := true
	if err := s.Switch(vllmsim.Switches{Render: &on}); err != nil {
		s.rig.t.Fatal(err)
	}
	s.incarnation = s.next()
}

// wantPaths checks for which paths the engine was asked since.
func (s *simulated) wantPaths(since int, want ...string) {
	s.rig.t.Helper()
	var list []string
	for _, r := range s.Requests()[since:] {
		list = append(list, r.Path)
	}
	if !slices.Equal(list, want) {
		s.rig.t.Errorf("asked %v, want %v", list, want)
	}
}

// list reads the engine's list of models.
func (s *simulated) list() {
	s.rig.t.Helper()
	_, list, err := s.rig.Client.Fetch(s.rig.t.Context(), &s.instance, "/v1/models", "", MaxModelList)
	if err != nil {
		s.rig.t.Fatal(err)
	}
	if s.models = ParseModels(list); s.models == nil {
		s.rig.t.Fatal("no list of models")
	}
}

// recordedMetrics are the metrics of vLLM 0.32.
func recordedMetrics(tb testing.TB) string {
	tb.Helper()
	raw, err := os.ReadFile("../../../testdata/exchanges/vllm-0.32/19-metrics-prefill.txt")
	must(tb, err)
	return string(raw)
}

// recorded returns the body of a recorded answer.
func recorded(tb testing.TB, name string) string {
	tb.Helper()
	return string(exchangetest.Read(tb, "vllm-0.32", name).Response.JSON)
}

// recordedAgents returns the body of an error that was recorded with the Messages and Responses APIs.
func recordedAgents(tb testing.TB, name string) string {
	tb.Helper()
	all := exchangetest.Read(tb, "vllm-0.32-agents", "13-errors-and-small-answers.json").Exchanges
	at := slices.IndexFunc(all, func(e exchangetest.Exchange) bool { return e.Name == name })
	return string(all[at].Response.JSON)
}

// must ends the test at an error.
func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
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

// defective makes every request with its context a defect: to connect is to look for values.
type defective struct{ context.Context }

func (defective) Value(any) any { panic("defect") }

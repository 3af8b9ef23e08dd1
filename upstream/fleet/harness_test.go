package fleet

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unicode"

	"go.uber.org/goleak"

	"carryover/logtest"
	"carryover/upstream"
	"carryover/upstream/fleet/facts"
	"carryover/upstream/vllmsim"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// seen is a policy that keeps what it was told, by instance, and picks the first candidate.
type seen struct {
	key        string
	candidates map[string]upstream.Candidate
}

func (s *seen) Pick(candidates []upstream.Candidate, key string) int {
	s.key, s.candidates = key, map[string]upstream.Candidate{}
	for _, c := range candidates {
		s.candidates[c.Name] = c
	}
	return 0
}

// rig is a fleet whose clock the test moves, and which a slow machine cannot run out of time. Names of prefill engines begin with p, of decode
// engines with d.
type rig struct {
	*Fleet
	t         *testing.T
	log       logtest.Log
	instances []upstream.Instance // all that were added
	passed    atomic.Int64
	seen      seen // what the policies were told last
	hint      Hint // of the picks of scripts

	// What scripts name (play_test.go).
	engines map[string]*Engine
	told    map[string]*Incarnation // "p0.1", and by "p0" the last one
	ends    map[string][]func()     // of attempts
	frees   atomic.Int64            // calls of OnFreed
	busy    atomic.Int64            // attempts at the last of them

	fakes   sync.Mutex        // guards the rest
	metrics map[string]string // what fake engines tell: words like start=5; a header has an upper case name
	lists   map[string]string // what models they list: names, a status, "hang-up" or a body
	asked   map[string]int    // by name and path
}

func newRig(t *testing.T) *rig {
	t.Helper()
	client := upstream.NewClient(upstream.ClientConfig{DialTimeout: 2 * time.Second})
	t.Cleanup(client.Close)
	r := &rig{
		t: t, engines: map[string]*Engine{}, told: map[string]*Incarnation{}, ends: map[string][]func(){},
		metrics: map[string]string{}, lists: map[string]string{}, asked: map[string]int{},
	}
	r.Fleet = New(Config{Client: client, Prefill: &r.seen, Decode: &r.seen, ReadLimit: time.Minute, AskLimit: time.Minute, Logger: r.log.Logger()})
	r.Catalogue.listWait = time.Minute // a loaded machine needs longer than an engine may
	began := time.Now()
	r.cfg.Now = func() time.Time { return began.Add(time.Duration(r.passed.Load())) }
	r.OnFreed(func() { // no lock is held
		r.frees.Add(1)
		r.busy.Store(0)
		for e := range r.members.Load().all {
			r.busy.Add(int64(e.Live().InFlight))
		}
	})
	return r
}

// pass moves the clock on.
func (r *rig) pass(d time.Duration) { r.passed.Add(int64(d)) }

var bothRoles = []upstream.Role{upstream.RolePrefill, upstream.RoleDecode}

func roleOf(name string) upstream.Role {
	return map[byte]upstream.Role{'p': upstream.RolePrefill, 'd': upstream.RoleDecode}[name[0]]
}

// named adds instances that have answered, by names. A host, if it isn't the name, and a data-parallel rank follow after slashes.
func (r *rig) named(names ...string) (engines []*Engine) {
	for _, name := range names {
		parts := strings.Split(name, "/")
		instance := upstream.Instance{Name: parts[0], BaseURL: "http://" + append(parts, parts[0])[1], Role: roleOf(name)}
		if len(parts) == 3 {
			instance.BaseURL, instance.Ranked = "http://"+parts[1], true
			instance.Rank, _ = strconv.Atoi(parts[2])
		}
		engines = append(engines, r.add(instance))
		engines[len(engines)-1].Health.Heard()
	}
	return engines
}

func (r *rig) add(instance upstream.Instance) *Engine {
	r.instances = append(r.instances, instance)
	r.Set(r.instances)
	e := r.Engine(instance.Role, instance.Name)
	r.engines[e.Name] = e
	return e
}

// at adds an instance at a URL, which has answered.
func (r *rig) at(name, url string) *Engine {
	e := r.add(upstream.Instance{Name: name, BaseURL: url, Role: roleOf(name)})
	e.Health.Heard()
	return e
}

// serves adds an instance that an HTTP server stands for.
func (r *rig) serves(name string, handler http.HandlerFunc) *Engine {
	srv := httptest.NewServer(handler)
	r.t.Cleanup(srv.Close)
	return r.at(name, srv.URL)
}

// fake adds an instance that answers what the maps of the rig say.
func (r *rig) fake(name string) *Engine {
	return r.serves(name, func(w http.ResponseWriter, q *http.Request) {
		r.fakes.Lock()
		r.asked[name+q.URL.Path]++
		metrics, list := r.metrics[name], r.lists[name]
		r.fakes.Unlock()
		switch q.URL.Path {
		case "/metrics":
			status, body := http.StatusOK, ""
			for word := range strings.FieldsSeq(metrics) {
				at := strings.LastIndex(word, "=")
				switch key, value := word[:at], word[at+1:]; {
				case unicode.IsUpper(rune(key[0])):
					w.Header().Set(key, value)
				case key == "status":
					status, _ = strconv.Atoi(value)
				default:
					body += strings.Replace(key, "start", "process_start_time_seconds", 1) + " " + value + "\n"
				}
			}
			answers(status, body)(w, q)
		case "/v1/models":
			if list == "hang-up" {
				panic(http.ErrAbortHandler)
			}
			status, err := strconv.Atoi(list)
			if err != nil {
				status = http.StatusOK
				if !strings.ContainsAny(list, "<{") {
					list = listOf(strings.Fields(list)...)
				}
			}
			answers(status, list)(w, q)
		}
	})
}

// tell changes what a fake engine answers to questions for its metrics.
func (r *rig) tell(name, metrics string) {
	r.fakes.Lock()
	defer r.fakes.Unlock()
	r.metrics[name] = metrics
}

func (r *rig) list(name, list string) {
	r.fakes.Lock()
	defer r.fakes.Unlock()
	r.lists[name] = list
}

func (r *rig) askedFor(path string) int {
	r.fakes.Lock()
	defer r.fakes.Unlock()
	return r.asked[path]
}

// simulate adds a simulated engine.
func (r *rig) simulate(name string, change func(*vllmsim.Config)) (*vllmsim.Instance, *Engine) {
	r.t.Helper()
	cfg := vllmsim.DefaultConfig()
	if change != nil {
		change(&cfg)
	}
	sim, err := vllmsim.Start(cfg)
	must(r.t, err)
	r.t.Cleanup(func() {
		if err := sim.Close(); err != nil {
			r.t.Errorf("close: %v", err)
		}
	})
	return sim, r.at(name, sim.URL())
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

func answers(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// count returns how often a simulated engine was asked at a path.
func count(sim *vllmsim.Instance, path string) (n int) {
	for _, r := range sim.Requests() {
		if r.Path == path {
			n++
		}
	}
	return n
}

// must ends the test at an error.
func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

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

package server_test

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"carryover/porttest"
	"carryover/upstream"
)

// patience bounds every wait of a test for something that must happen.
const patience = 20 * time.Second

// leg is one request as an engine saw it.
type leg struct {
	uri     string
	header  http.Header
	body    string
	length  int64
	framing []string // Transfer-Encoding
}

// id is the leg's X-Request-Id.
func (l leg) id() string { return l.header.Get("X-Request-Id") }

// params are the members of the leg's kv_transfer_params, nil if there are none.
func (l leg) params() map[string]any {
	var body struct {
		Params map[string]any `json:"kv_transfer_params"`
	}
	_ = json.Unmarshal([]byte(l.body), &body) // a leg that is no JSON fails elsewhere
	return body.Params
}

// ticket is the request id that names the blocks of a ticket, "" if the leg carries none.
func (l leg) ticket() string {
	p := l.params()
	id, _ := p["remote_request_id"].(string)
	if p["do_remote_decode"] != true {
		return ""
	}
	return id
}

func (l leg) streams() bool { return strings.Contains(l.body, `"stream":true`) }

// rescues reports whether a leg is one of our own that takes a hand-over.
func (l leg) rescues() bool { return strings.HasSuffix(l.id(), "-rescue") }

// releases reports whether a leg is a release of our own.
func (l leg) releases() bool {
	return l.streams() && l.ticket() != "" && l.params()["remote_num_tokens"] == 0.0
}

// releases is a prefill instance that answers a release with a first event, and then goes on until the connection is dropped.
func releases(w http.ResponseWriter, r *http.Request, l leg) {
	w.Header().Set("Content-Type", "text/event-stream")
	_, _ = fmt.Fprintf(w, "data: {\"id\":\"cmpl-%s\",\"choices\":[{\"index\":0,\"text\":\" w\",\"finish_reason\":null}]}\n\n", l.id())
	_ = http.NewResponseController(w).Flush()
	<-r.Context().Done()
}

// behaviour is how an engine answers one leg.
type behaviour func(w http.ResponseWriter, r *http.Request, l leg)

// engine is a scripted vLLM instance. Legs use up next, then meet otherwise. Rescues, which come at any time, use up nothing.
type engine struct {
	t         *testing.T
	name      string
	role      upstream.Role
	server    *httptest.Server
	door      *door // through which it is reached, nil without
	models    behaviour
	strangers behaviour                   // the same for a key that nobody has
	counts    behaviour                   // of count_tokens, which nothing asks for without it
	idless    bool                        // it renders prompts by itself, whatever ids it is sent
	tokenize  func(request string) string // what /tokenize answers
	metrics   behaviour
	health    behaviour    // nil for 200
	checked   atomic.Int64 // how often its health was asked for
	mu        sync.Mutex   // guards what follows
	legs      []leg
	ended     int // legs whose handler has returned
	script    []behaviour
	fallback  behaviour
	changed   chan struct{} // closed and replaced when legs or ended changes
}

func newEngine(t *testing.T, role upstream.Role, name string) *engine {
	t.Helper()
	e := &engine{t: t, name: name, role: role, changed: make(chan struct{}), fallback: prefills}
	e.models = replyBody("application/json", `{"object":"list","data":[{"id":"m","max_model_len":4096}]}`)
	e.strangers = e.models
	if role == upstream.RoleDecode {
		e.fallback = decodes
	}
	e.metrics = metricsOf(rigIncarnation, rigBlock)
	e.tokenize = func(request string) string { return `{"tokens":` + list(promptOf(request)) + `}` }
	e.server = httptest.NewUnstartedServer(http.HandlerFunc(e.serve))
	_ = e.server.Listener.Close()
	listener, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(porttest.Reserve(t))) // which stays its own when it is closed
	if err != nil {
		t.Fatal(err)
	}
	e.server.Listener = listener
	e.server.Config.ErrorLog = log.New(io.Discard, "", 0) // broken connections are the point of many tests
	e.server.Start()
	t.Cleanup(e.server.Close)
	return e
}

func (e *engine) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	switch r.URL.Path {
	case "/health":
		e.checked.Add(1)
		if e.health != nil {
			e.health(w, r, leg{})
		}
		return
	case "/v1/models":
		key := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
		if _, err := hex.DecodeString(key); err == nil && len(key) == 32 { // nobody has it: the question whether keys are checked, which comes when it comes
			e.strangers(w, r, leg{})
			return
		}
		e.models(w, r, leg{})
		return
	case "/tokenize":
		if e.tokenize == nil {
			http.NotFound(w, r) // an engine that can't be asked
			return
		}
		answerJSON(w, e.tokenize(string(body)))
		return
	case "/metrics":
		e.mu.Lock()
		metrics := e.metrics
		e.mu.Unlock()
		metrics(w, r, leg{})
		return
	case "/version", "/v1/chat/completions/render", "/v1/messages/render", "/v1/responses/render":
		http.NotFound(w, r) // an engine that does not say, and renders for nobody
		return
	case "/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses":
	case "/v1/messages/count_tokens":
		if e.counts != nil {
			e.counts(w, r, leg{})
			return
		}
		fallthrough
	default:
		e.t.Errorf("%s saw a request for %s", e.name, r.URL.Path)
	}
	if e.refusesProbe(w, string(body)) {
		return
	}
	l := leg{uri: r.RequestURI, header: r.Header.Clone(), body: string(body), length: r.ContentLength, framing: r.TransferEncoding}
	e.mu.Lock()
	act := e.fallback
	if strings.Contains(l.body, `"prompt":"Hello"`) { // a question, whether it serves at all
		e.mu.Unlock()
		act(&legWriter{ResponseWriter: w, leg: l, role: e.role}, r, l)
		return
	}
	e.legs = append(e.legs, l)
	if len(e.script) > 0 && !l.rescues() {
		act, e.script = e.script[0], e.script[1:]
	} else if l.releases() {
		act = releases
	}
	e.signal()
	e.mu.Unlock()
	defer func() {
		e.mu.Lock()
		e.ended++
		e.signal()
		e.mu.Unlock()
	}()
	act(&legWriter{ResponseWriter: w, leg: l, role: e.role}, r, l)
}

// signal needs e.mu.
func (e *engine) signal() {
	close(e.changed)
	e.changed = make(chan struct{})
}

// next scripts the next legs.
func (e *engine) next(acts ...behaviour) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.script = append(e.script, acts...)
}

// drop forgets what is scripted and was not used.
func (e *engine) drop() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.script = nil
}

// always replaces what the engine does with legs that are not scripted.
func (e *engine) always(act behaviour) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.fallback = act
}

// tells replaces what /metrics answers.
func (e *engine) tells(metrics behaviour) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.metrics = metrics
}

// seen returns the legs so far.
func (e *engine) seen() []leg {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.legs)
}

// wantLegs checks how many legs there were so far.
func (e *engine) wantLegs(n int) {
	e.t.Helper()
	if got := len(e.seen()); got != n {
		e.t.Errorf("%s saw %d legs, want %d", e.name, got, n)
	}
}

// ofClients returns the legs so far without rescues.
func (e *engine) ofClients() []leg { return slices.DeleteFunc(e.seen(), leg.rescues) }

// await returns the legs when there are n of them.
func (e *engine) await(n int) []leg {
	e.t.Helper()
	e.until(fmt.Sprintf("%d legs", n), func() bool { return len(e.legs) >= n })
	return e.seen()
}

// awaitEnd waits until n legs have ended.
func (e *engine) awaitEnd(n int) {
	e.t.Helper()
	e.until(fmt.Sprintf("%d ended legs", n), func() bool { return e.ended >= n })
}

func (e *engine) until(what string, true func() bool) {
	e.t.Helper()
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for {
		e.mu.Lock()
		ok, changed := true(), e.changed
		e.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-limit.C:
			e.t.Fatalf("%s: waited %s for %s, saw %d legs", e.name, patience, what, len(e.seen()))
		}
	}
}

// rigIncarnation is the start that engines tell, rigBlock their block size: the three blocks of their params are right for it.
const (
	rigIncarnation = "1.5e+09"
	rigBlock       = 80
)

// metricsOf tells a start time, "" for none, and a block size, 0 for none.
func metricsOf(incarnation string, block int) behaviour {
	return func(w http.ResponseWriter, _ *http.Request, _ leg) {
		if incarnation != "" {
			_, _ = fmt.Fprintf(w, "process_start_time_seconds %s\n", incarnation)
		}
		if block != 0 {
			_, _ = fmt.Fprintf(w, "vllm:cache_config_info{block_size=\"%d\"} 1\n", block)
		}
	}
}

// Package admin is the listener for operators: a page about the program and each instance, registration and draining of instances, and the
// reload of the configuration. It promises that
//
//   - if a bearer token is configured, a request without it gets no data (guard.go);
//   - without a token it answers only requests that name a loopback host and come from no web page but its own. So no site that
//     an operator visits can reach it (DNS rebinding, cross-site requests);
//   - an instance is added only if legs can be sent to its address, and a list that is refused changes nothing (instances.go);
//   - the page runs no script and loads no file except its own, whatever the data contain (page.go);
//   - viewers of the page cost a turn nothing, and a viewer that reads too slowly is disconnected (page.go);
//   - nothing of a client is shown: no prompt, no credential, and of a conversation's id only the beginning of its keyed hash (turns.go).
//
// It is for operators alone: they may ask about the turns of every tenant.
package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"carryover/server/events"
	"carryover/server/journal"
	"carryover/sse/rawjson"
	"carryover/upstream"
	"carryover/upstream/fleet"
)

// Registry manages the instances that are added at run time.
type Registry interface {
	// Add adds an instance, and returns when the fleet has it. It replaces an instance of the same role and name.
	Add(instance upstream.Instance) error
	// Remove removes an instance, which then gets no new turns. It reports whether there was such an instance.
	Remove(role upstream.Role, name string) bool
}

// Registration adds instances at run time. Without a Registry none can be added.
type Registration struct {
	Registry Registry
	// Own reports whether this program itself listens at host:port, so that it can't be an instance. nil checks nothing.
	Own func(ctx context.Context, authority string) bool
}

// State is the state that the listener shows.
type State struct {
	Identity Identity
	// Pinned returns how many tokens of a decode instance's KV cache this replica's tickets pin; Budget how many they may, 0 for no limit.
	Pinned, Budget func(*fleet.Engine) int
	// Drain drains an instance or takes it back. It reports whether there is such an instance, and whether all replicas share it.
	Drain func(ctx context.Context, role upstream.Role, name string, drain bool) (found, shared bool)
	// Waiting returns how many turns wait to begin and how many wait for an instance; Open returns how many have begun.
	Waiting func() (toBegin, forInstance int)
	Open    func() int
	// Ready returns the word of /readyz, and a sentence about why no turns are served, or only by decode; else "".
	Ready func() (word, why string)
}

// Identity says which program this is.
type Identity struct {
	Version string            `json:"version"`
	Replica string            `json:"replica"` // the name of the host
	Reasons map[string]string `json:"reasons"` // what each reason of a miss means, and what to do
}

// Handlers answer requests that the listener passes on. A nil one is not served.
type Handlers struct {
	Metrics http.Handler // scrapes of Prometheus
	// Health answers /healthz, /readyz and /health without a token, because programs that watch the process have none.
	Health http.Handler
}

// Conversations finds conversations by name and by the id that a client sent.
type Conversations struct {
	// HashID returns the keyed hash of a client's id. It is required with a Journal.
	HashID func(id string) [8]byte
	// Tickets lists the tickets of a conversation that this replica has stored. nil if not known.
	Tickets func(conversation string) []Ticket
}

// Deps is what the listener works with.
type Deps struct {
	Token        string // "": no token is required
	Fleet        *fleet.Fleet
	Registration Registration
	// Reload reads the configuration again and applies it. If that fails, it changes nothing and returns why.
	Reload   func() error
	State    State
	Handlers Handlers
	// Journal has the last turns. Without it there are no turns and no page.
	Journal *journal.Journal
	// Events has the last events, and gets the drains. It is required.
	Events *events.List
	Conversations
	Logger *slog.Logger
	// LogLevel is the level of the log, which operators may change. It is nil if they may not.
	LogLevel *slog.LevelVar
	// LiveEvery is the time between two events of the live data, 1 s by default.
	LiveEvery time.Duration
}

type admin struct {
	Deps
	viewers chan struct{} // has one element for each viewer
}

// New returns the handler of the listener.
func New(deps Deps) http.Handler {
	if deps.LiveEvery <= 0 {
		deps.LiveEvery = time.Second
	}
	a := &admin{deps, make(chan struct{}, maxViewers)}
	mux := &endpoints{ServeMux: http.NewServeMux()}
	mux.handle("GET /admin/instances", a.list)
	mux.handle("POST /admin/instances", a.add)
	mux.handle("DELETE /admin/instances/{role}/{name}", a.remove)
	mux.handle("POST /admin/instances/{role}/{name}/drain", a.drain(true))
	mux.handle("POST /admin/instances/{role}/{name}/undrain", a.drain(false))
	mux.handle("POST /admin/reload", a.reload)
	mux.handle("GET /admin/events", a.events)
	if deps.LogLevel != nil {
		mux.handle("GET /admin/log-level", a.logLevel)
		mux.handle("PUT /admin/log-level", a.setLogLevel)
	}
	if deps.Handlers.Metrics != nil {
		mux.handle("GET /metrics", deps.Handlers.Metrics.ServeHTTP)
	}
	if deps.Handlers.Health != nil {
		for _, path := range healthPaths() {
			mux.handle("GET "+path, deps.Handlers.Health.ServeHTTP)
		}
	}
	if deps.Journal != nil {
		mux.handle("GET /admin/turns", a.turns)
		mux.handle("GET /admin/conversations/{hash}", a.conversation)
		mux.handle("POST /admin/conversations/search", a.search)
	}
	addProfiles(mux)
	page := http.Handler(mux) // without the page, mux answers 404
	if deps.Journal != nil {
		mux.handle("GET /admin/live", a.live)
		page = newPage()
	}
	return guard(deps.Token, page, mux)
}

// reload answers 200, or 422 with a reason that names each fault of the configuration on its own line.
func (a *admin) reload(w http.ResponseWriter, _ *http.Request) {
	if err := a.Reload(); err != nil {
		refuse(w, http.StatusUnprocessableEntity, "config_refused", err.Error())
		return
	}
	answer(w, http.StatusOK, map[string]string{"status": "reloaded"})
}

type problem struct {
	Message string `json:"message"`
	Type    string `json:"type"`
	Param   any    `json:"param"` // string or null
	Code    string `json:"code"`
}

func refuse(w http.ResponseWriter, status int, code, message string) {
	refuseParam(w, status, nil, code, message)
}

func refuseParam(w http.ResponseWriter, status int, param any, code, message string) {
	kind := "invalid_request_error"
	if status >= http.StatusInternalServerError {
		kind = "server_error"
	}
	answer(w, status, map[string]problem{"error": {message, kind, param, code}})
}

func answer(w http.ResponseWriter, status int, value any) {
	body, err := json.Marshal(value)
	if err != nil { // only NaN can't be written, and no engine's state has it
		status, body = http.StatusInternalServerError, []byte(`{"error":{"message":"internal error","type":"server_error","param":null,"code":"internal"}}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // an error means that the operator has gone
}

// endpoints are "METHOD path", in the order in which they were added.
type endpoints struct {
	*http.ServeMux
	listed []string
}

func (e *endpoints) handle(endpoint string, handler http.HandlerFunc) {
	e.Handle(endpoint, handler)
	e.listed = append(e.listed, endpoint)
}

// ServeHTTP answers requests that match no endpoint in the shape of the API's errors; the multiplexer would answer in plain text.
func (e *endpoints) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	unserved, pattern := e.Handler(r)
	if pattern != "" {
		e.ServeMux.ServeHTTP(w, r)
		return
	}
	verdict := &headOnly{header: http.Header{}}
	unserved.ServeHTTP(verdict, r)
	if verdict.status == http.StatusMethodNotAllowed {
		w.Header().Set("Allow", verdict.header.Get("Allow"))
		refuse(w, verdict.status, "method_not_allowed", "Method not allowed.")
		return
	}
	refuse(w, http.StatusNotFound, "not_found", "Unknown endpoint of the listener for operators. Served are "+strings.Join(e.listed, ", ")+".")
}

type headOnly struct {
	header http.Header
	status int
}

func (h *headOnly) Header() http.Header { return h.header }

func (h *headOnly) WriteHeader(status int) { h.status = status }

func (h *headOnly) Write(body []byte) (int, error) { return len(body), nil }

// readObject refuses other members, and each repeated one. encoding/json would accept names in any case, and take the last.
func readObject(body io.Reader, into any, names ...string) error {
	text, err := io.ReadAll(body)
	if err != nil {
		return err
	}
	if _, err = rawjson.ParseObjectFunc(text, func(s *rawjson.Scanner, name []byte) error {
		if !slices.Contains(names, string(name)) {
			return fmt.Errorf("unknown member %q", name)
		}
		return s.Skip()
	}); err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}

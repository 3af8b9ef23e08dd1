package admin

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"carryover/server/journal"
	"carryover/upstream"
	"carryover/upstream/fleet"
)

// Registry has the instances that are added at run time.
type Registry interface {
	// Add adds an instance, and returns when the fleet has it. It replaces one of the same role and name.
	Add(instance upstream.Instance) error
	// Remove reports whether there was such an instance. It gets no new turns.
	Remove(role upstream.Role, name string) bool
}

// Deps is what the listener works with. Registry may be nil; then instances can't be added.
type Deps struct {
	Token    string // "" demands none
	Fleet    *fleet.Fleet
	Registry Registry
	// Own reports whether host:port is where this program itself listens, so that it is no instance. nil says of nothing that it is.
	Own func(ctx context.Context, authority string) bool
	// Reload reads the configuration anew and puts it in force, or changes nothing and says why.
	Reload func() error
	// Pinned returns how many tokens of a decode instance's KV cache the tickets of this replica pin, Budget how many they may pin, 0 for
	// no limit.
	Pinned, Budget func(*fleet.Engine) int
	// Exposed returns since when an instance has had KV of a quarantined prefill instance in its prefix cache, so that its legs carry a
	// cache_salt; false if it has had none.
	Exposed func(*fleet.Engine) (since time.Time, exposed bool)
	// Waiting returns how many turns wait to begin and how many wait for an instance; Open returns how many have begun.
	Waiting func() (toBegin, forInstance int)
	Open    func() int
	// Journal has the last turns, Metrics answers with what Prometheus scrapes, Explain with what would become of a request.
	// What is nil is not served; the page needs the journal.
	Journal *journal.Journal
	Metrics http.Handler
	Explain http.Handler
	// Health answers /healthz, /readyz and /health, without a token: what watches over a process has none.
	Health http.Handler
	// Tickets lists the tickets of a conversation that this replica has put into the store; nil where that is not known.
	Tickets func(conversation string) []Ticket
	Logger  *slog.Logger
	// LogLevel is the level of the log, which operators change; nil where they may not.
	LogLevel *slog.LevelVar
	// LiveEvery is the time between two events of the live data, 1 s by default.
	LiveEvery time.Duration
}

// admin answers operators.
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
	mux := newEndpoints()
	mux.handle("GET /admin/instances", a.list)
	mux.handle("POST /admin/instances", a.add)
	mux.handle("DELETE /admin/instances/{role}/{name}", a.remove)
	mux.handle("POST /admin/instances/{role}/{name}/drain", a.drain(true))
	mux.handle("POST /admin/instances/{role}/{name}/undrain", a.drain(false))
	mux.handle("POST /admin/reload", a.reload)
	if deps.LogLevel != nil {
		mux.handle("GET /admin/log-level", a.logLevel)
		mux.handle("PUT /admin/log-level", a.setLogLevel)
	}
	if deps.Metrics != nil {
		mux.handle("GET /metrics", deps.Metrics.ServeHTTP)
	}
	if deps.Health != nil {
		for _, path := range healthPaths() {
			mux.handle("GET "+path, deps.Health.ServeHTTP)
		}
	}
	if deps.Explain != nil {
		mux.handle("POST "+explainPath, deps.Explain.ServeHTTP)
	}
	if deps.Journal != nil {
		mux.handle("GET /admin/turns", a.turns)
		mux.handle("GET /admin/conversations/{hash}", a.conversation)
	}
	addProfiles(mux)
	page := http.Handler(mux) // answers 404 for the page
	if deps.Journal != nil {
		mux.handle("GET /admin/live", a.live)
		page = newPage()
	}
	return guard(deps.Token, page, mux)
}

// reload answers 200, or 422 with the reason in whose lines each fault of the configuration is named.
func (a *admin) reload(w http.ResponseWriter, _ *http.Request) {
	if err := a.Reload(); err != nil {
		refuse(w, http.StatusUnprocessableEntity, "config_refused", err.Error())
		return
	}
	answer(w, http.StatusOK, map[string]string{"status": "reloaded"})
}

package admin

import (
	"log/slog"
	"net/http"

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
	// Reload reads the configuration anew and puts it in force, or changes nothing and says why.
	Reload func() error
	// Pinned is how many tokens of a decode instance's KV cache the tickets of this replica hold.
	Pinned func(*fleet.Engine) int
	// Journal has the last turns, Metrics answers with what Prometheus scrapes, Explain with what would become of a request.
	// What is nil is not served.
	Journal *journal.Journal
	Metrics http.Handler
	Explain http.Handler
	Logger  *slog.Logger
}

// admin answers operators.
type admin struct{ Deps }

// New returns the handler of the listener.
func New(deps Deps) http.Handler {
	a := &admin{deps}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /admin/instances", a.list)
	mux.HandleFunc("POST /admin/instances", a.add)
	mux.HandleFunc("DELETE /admin/instances/{role}/{name}", a.remove)
	mux.HandleFunc("POST /admin/instances/{role}/{name}/drain", a.drain(true))
	mux.HandleFunc("POST /admin/instances/{role}/{name}/undrain", a.drain(false))
	mux.HandleFunc("POST /admin/reload", a.reload)
	if deps.Metrics != nil {
		mux.Handle("GET /metrics", deps.Metrics)
	}
	if deps.Explain != nil {
		mux.Handle("POST /admin/explain", deps.Explain)
	}
	return guard(deps.Token, mux)
}

// reload answers 200, or 422 with the reason in whose lines each fault of the configuration is named.
func (a *admin) reload(w http.ResponseWriter, _ *http.Request) {
	if err := a.Reload(); err != nil {
		refuse(w, http.StatusUnprocessableEntity, "config_refused", err.Error())
		return
	}
	answer(w, http.StatusOK, map[string]string{"status": "reloaded"})
}

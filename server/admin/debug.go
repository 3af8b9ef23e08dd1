package admin

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/pprof"
	"slices"
	"strings"
)

type levelAnswer struct {
	Level string `json:"level"`
}

// levels are the words of the configuration.
func levels() []string { return []string{"debug", "info", "warn", "error"} }

func (a *admin) logLevel(w http.ResponseWriter, _ *http.Request) {
	answer(w, http.StatusOK, levelAnswer{strings.ToLower(a.LogLevel.Level().String())})
}

// setLogLevel changes the level until the next reload, which applies the configured level again.
func (a *admin) setLogLevel(w http.ResponseWriter, r *http.Request) {
	level, err := readLevel(r.Body)
	if err != nil {
		refuseParam(w, http.StatusBadRequest, "level", "invalid_level", err.Error())
		return
	}
	before := a.LogLevel.Level()
	a.LogLevel.Set(min(before, level)) // the more verbose of the two levels, so that the next line is written
	a.Logger.Info("log level changed", "from", before.String(), "to", level.String())
	a.LogLevel.Set(level)
	a.logLevel(w, r)
}

func readLevel(body io.Reader) (level slog.Level, err error) {
	malformed := fmt.Errorf("the body must be {\"level\": \"…\"} with one of %s", strings.Join(levels(), ", "))
	var wanted levelAnswer
	if readObject(body, &wanted, "level") != nil || !slices.Contains(levels(), wanted.Level) {
		return 0, malformed
	}
	return level, level.UnmarshalText([]byte(wanted.Level))
}

// addProfiles serves profiles for `go tool pprof`: CPU time, allocations, goroutines. They name functions and lines, and hold nothing of
// a client. A CPU profile has to end within the listener's own limit, 30 s, so request it with ?seconds=20; only one runs at a time. The
// command line and execution traces are not served.
func addProfiles(mux *endpoints) {
	mux.handle("GET /debug/pprof/profile", pprof.Profile)
	mux.handle("GET /debug/pprof/{name}", func(w http.ResponseWriter, r *http.Request) {
		name := r.PathValue("name")
		if !slices.Contains([]string{"heap", "allocs", "goroutine"}, name) {
			refuse(w, http.StatusNotFound, "not_found", "The profiles are profile, heap, allocs and goroutine.")
			return
		}
		pprof.Handler(name).ServeHTTP(w, r)
	})
}

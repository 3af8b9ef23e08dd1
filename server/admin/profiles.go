package admin

import (
	"net/http"
	"net/http/pprof"
	"slices"
)

// addProfiles serves profiles of the program for `go tool pprof`: where it spends CPU time, what it allocates, where its goroutines are.
// They name functions and lines, and hold nothing of a client. A CPU profile has to end within the listener's own limit, 30 s, so request
// it with ?seconds=20; only one runs at a time. The command line and execution traces are not served.
func addProfiles(mux *endpoints) {
	mux.handle("GET /debug/pprof/profile", pprof.Profile)
	mux.handle("GET /debug/pprof/{name}", func(w http.ResponseWriter, r *http.Request) {
		name := r.PathValue("name")
		if !slices.Contains([]string{"heap", "allocs", "goroutine"}, name) {
			refuse(w, http.StatusNotFound, "not_found", "There are the profiles profile, heap, allocs and goroutine.")
			return
		}
		pprof.Handler(name).ServeHTTP(w, r)
	})
}

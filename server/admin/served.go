package admin

import (
	"net/http"
	"strings"
)

// endpoints is what a listener serves, as "METHOD path", in the order in which it was added.
type endpoints struct {
	*http.ServeMux
	listed []string
}

func newEndpoints() *endpoints { return &endpoints{ServeMux: http.NewServeMux()} }

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

// headOnly takes an answer without its body.
type headOnly struct {
	header http.Header
	status int
}

// Header is the header of the answer.
func (h *headOnly) Header() http.Header { return h.header }

// WriteHeader takes the status.
func (h *headOnly) WriteHeader(status int) { h.status = status }

// Write drops the body.
func (h *headOnly) Write(body []byte) (int, error) { return len(body), nil }

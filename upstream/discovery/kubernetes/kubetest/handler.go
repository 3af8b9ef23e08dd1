package kubetest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// ServeHTTP checks in the order of the API server: the account, its rights, then the request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	verb := "list"
	if query.Get("watch") != "" {
		verb = "watch"
	}
	s.announce(Request{Verb: verb, Query: query})
	if refusal, ok := s.admit(r, verb); !ok {
		refusal.answer(w)
		return
	}
	which := selector(query.Get("labelSelector"))
	if verb == "watch" {
		s.serveWatch(w, r, which)
		return
	}
	s.list(w, which, query)
}

func (s *Server) announce(r Request) {
	s.mu.Lock()
	s.requests = append(s.requests, r)
	before := s.before
	s.mu.Unlock()
	if before != nil {
		before(r)
	}
}

func (s *Server) admit(r *http.Request, verb string) (_ Refusal, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.refusals) > 0 {
		next := s.refusals[0]
		s.refusals = s.refusals[1:]
		return next, false
	}
	switch {
	case r.Header.Get("Authorization") != "Bearer "+s.token:
		return Refusal{Status: http.StatusUnauthorized, Reason: "Unauthorized", Message: "Unauthorized"}, false
	case s.forbidden[verb]:
		message := fmt.Sprintf(`pods is forbidden: User "system:serviceaccount:%[1]s:carryover" cannot %[2]s resource "pods" in the namespace %[1]q`, Namespace, verb)
		return Refusal{Status: http.StatusForbidden, Reason: "Forbidden", Message: message}, false
	case r.URL.Path != "/api/v1/namespaces/"+Namespace+"/pods" || r.Method != http.MethodGet:
		return Refusal{Status: http.StatusNotFound, Reason: "NotFound", Message: "the server could not find the requested resource"}, false
	}
	return Refusal{}, true
}

// expired is the answer for a version whose history is gone. The reason is not "Gone".
func expired() Refusal {
	return Refusal{Status: http.StatusGone, Reason: "Expired", Message: "too old resource version"}
}

func (r Refusal) status() map[string]any {
	return map[string]any{
		"kind": "Status", "apiVersion": "v1", "metadata": map[string]any{}, "status": "Failure",
		"message": r.Message, "reason": r.Reason, "code": r.Status,
	}
}

func (r Refusal) answer(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "application/json")
	for name, value := range r.Header {
		w.Header().Set(name, value)
	}
	w.WriteHeader(r.Status)
	if r.Body != "" {
		_, _ = io.WriteString(w, r.Body)
		return
	}
	_ = json.NewEncoder(w).Encode(r.status()) // the client may have gone
}

// list answers a page. A continue token is the version of the first page and the number of objects before.
func (s *Server) list(w http.ResponseWriter, which selector, query url.Values) {
	version, from := 0, 0
	if token := query.Get("continue"); token != "" {
		at, skip, _ := strings.Cut(token, "+")
		version, _ = strconv.Atoi(at) // the token is ours
		from, _ = strconv.Atoi(skip)
	}
	listed, version, ok := s.store.snapshot(which, version)
	if !ok {
		expired().answer(w)
		return
	}
	to := len(listed)
	if limit, err := strconv.Atoi(query.Get("limit")); err == nil && limit > 0 {
		to = min(to, from+limit)
	}
	meta := map[string]any{"resourceVersion": strconv.Itoa(version)}
	if to < len(listed) {
		meta["continue"], meta["remainingItemCount"] = fmt.Sprintf("%d+%d", version, to), len(listed)-to
	}
	items := []json.RawMessage{}
	for _, o := range listed[from:to] {
		items = append(items, bytes.Replace(o.render(o.version), []byte(kind), nil, 1))
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"kind": "List", "apiVersion": "v1", "metadata": meta, "items": items})
}

package kubetest

import (
	"encoding/json"
	"net/http"
	"strconv"
	"sync"
	"time"
)

type watch struct {
	marks chan struct{} // asks for a bookmark
	end   chan ending   // ends the stream now
	tear  chan struct{} // breaks the connection within the next event
}

type ending int

const (
	endClean ending = iota // as after timeoutSeconds
	endCut                 // the connection breaks
	endError               // an ERROR event, which is the last
)

func put[T any](to chan T, value T) {
	select {
	case to <- value:
	default:
	}
}

type stream struct {
	*watch
	w    http.ResponseWriter
	last int // version of the last event
}

func (s *Server) serveWatch(w http.ResponseWriter, r *http.Request, which selector) {
	version, err := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	if err != nil {
		Refusal{Status: http.StatusBadRequest, Reason: "BadRequest", Message: "invalid resource version"}.answer(w)
		return
	}
	timeout := time.Hour
	if seconds, err := strconv.Atoi(r.URL.Query().Get("timeoutSeconds")); err == nil && seconds > 0 {
		timeout = time.Duration(seconds) * time.Second
	}
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	one := &stream{watch: &watch{marks: make(chan struct{}, 1), end: make(chan ending, 1), tear: make(chan struct{}, 1)}, w: w, last: version}
	if s.refusesVersion(version) {
		expired().answer(w)
		return
	}
	s.enter(one.watch)
	defer s.leave(one.watch)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	one.flush()
	for mark := false; ; {
		changes, current, news, ok := s.store.since(one.last)
		if !ok {
			one.send("ERROR", expired().status())
			return
		}
		for _, c := range changes {
			one.tell(c, which)
		}
		if mark && current > one.last {
			one.last = current
			one.send("BOOKMARK", map[string]any{"kind": "Pod", "metadata": map[string]any{"resourceVersion": strconv.Itoa(current), "creationTimestamp": nil}})
		}
		mark = false
		select {
		case <-news:
		case <-one.marks:
			mark = r.URL.Query().Get("allowWatchBookmarks") == "true"
		case how := <-one.end:
			if how == endError {
				one.send("ERROR", Refusal{Status: http.StatusInternalServerError, Reason: "InternalError", Message: "etcdserver: mvcc: something else"}.status())
			}
			if how == endCut {
				panic(http.ErrAbortHandler)
			}
			return
		case <-timer.C:
			return
		case <-r.Context().Done():
			return
		}
	}
}

// refusesVersion reports whether a watch from this version gets status 410 instead of an ERROR event.
func (s *Server) refusesVersion(version int) bool {
	_, _, _, ok := s.store.since(version)
	s.mu.Lock()
	defer s.mu.Unlock()
	return !ok && s.goneIsNow
}

// tell sends a change as the selector sees it. A deleted object, or one that no longer matches, comes in its last state, with the
// version of the change.
func (s *stream) tell(c change, which selector) {
	s.last = c.version
	was := c.before != nil && which.matches(c.before.Labels)
	is := c.after != nil && which.matches(c.after.Labels)
	switch {
	case is && was:
		s.send("MODIFIED", c.after.render(c.version))
	case is:
		s.send("ADDED", c.after.render(c.version))
	case was:
		s.send("DELETED", c.before.render(c.version))
	}
}

// send writes one event. A failed write ends the request's context.
func (s *stream) send(kind string, object any) {
	text, err := json.Marshal(map[string]any{"type": kind, "object": object})
	if err != nil {
		panic(err) // a broken fixture
	}
	select {
	case <-s.tear:
		_, _ = s.w.Write(text[:len(text)/2])
		s.flush()
		panic(http.ErrAbortHandler)
	default:
	}
	_, _ = s.w.Write(append(text, '\n'))
	s.flush()
}

func (s *stream) flush() { _ = http.NewResponseController(s.w).Flush() }

type openWatches struct {
	mu   sync.Mutex
	open map[*watch]struct{}
}

// Bookmark sends a bookmark of the current version to every open watch that wants them.
func (o *openWatches) Bookmark() { o.each(func(w *watch) { put(w.marks, struct{}{}) }) }

// End ends every open watch as after its time.
func (o *openWatches) End() { o.each(func(w *watch) { put(w.end, endClean) }) }

// Cut breaks the connection of every open watch.
func (o *openWatches) Cut() { o.each(func(w *watch) { put(w.end, endCut) }) }

// Fail ends every open watch with an ERROR event that is not about its version.
func (o *openWatches) Fail() { o.each(func(w *watch) { put(w.end, endError) }) }

// Tear breaks the connection of every open watch in the middle of its next event.
func (o *openWatches) Tear() { o.each(func(w *watch) { put(w.tear, struct{}{}) }) }

func (o *openWatches) each(do func(*watch)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for w := range o.open {
		do(w)
	}
}

func (o *openWatches) enter(w *watch) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.open == nil {
		o.open = map[*watch]struct{}{}
	}
	o.open[w] = struct{}{}
}

func (o *openWatches) leave(w *watch) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.open, w)
}

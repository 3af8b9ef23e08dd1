package wire

import (
	"net/http"
	"slices"
)

// Events writes a stream of server-sent events. After the first error it writes nothing.
type Events struct {
	w     http.ResponseWriter
	flush *http.ResponseController
	Err   error // ErrConnectionGone when the stream has failed
}

// NewEvents sends the status of a stream.
func NewEvents(w http.ResponseWriter) *Events {
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	s := &Events{w: w, flush: http.NewResponseController(w)}
	w.WriteHeader(http.StatusOK)
	if s.flush.Flush() != nil {
		s.Err = ErrConnectionGone
	}
	return s
}

// Write sends one event. Events of Messages and Responses have names, others "".
func (s *Events) Write(name string, data any) { s.Raw(name, RawJSON(data)) }

// Raw sends one event in one write, as uvicorn sends one chunk for each event.
func (s *Events) Raw(name string, data []byte) {
	if s.Err != nil {
		return
	}
	if name != "" {
		name = "event: " + name + "\n"
	}
	if _, err := s.w.Write(slices.Concat([]byte(name+"data: "), data, []byte("\n\n"))); err != nil || s.flush.Flush() != nil {
		s.Err = ErrConnectionGone
	}
}

// Done ends a stream of chat or text.
func (s *Events) Done() error {
	s.Raw("", []byte("[DONE]"))
	return s.Err
}

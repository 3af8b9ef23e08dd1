package wire

import (
	"net/http"
	"slices"
)

// NamedEvents writes a stream whose events have names, as in the Messages and the Responses API.
type NamedEvents struct {
	w     http.ResponseWriter
	flush *http.ResponseController
}

// NewNamedEvents returns a stream that has not sent its status yet.
func NewNamedEvents(w http.ResponseWriter) NamedEvents {
	return NamedEvents{w: w, flush: http.NewResponseController(w)}
}

// Open sends the status.
func (s NamedEvents) Open() error {
	s.w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	s.w.WriteHeader(http.StatusOK)
	if s.flush.Flush() != nil {
		return ErrConnectionGone
	}
	return nil
}

// Write sends one event in one write, as uvicorn sends one chunk for each.
func (s NamedEvents) Write(name string, data any) error {
	raw, err := Marshal(data)
	if err != nil {
		return err
	}
	if _, err := s.w.Write(slices.Concat([]byte("event: "+name+"\ndata: "), raw, []byte("\n\n"))); err != nil {
		return ErrConnectionGone
	}
	if s.flush.Flush() != nil {
		return ErrConnectionGone
	}
	return nil
}

package vllmsim

import (
	"net/http"
	"slices"
)

// namedEvents writes a stream whose events have names, as in the Messages and the Responses API.
type namedEvents struct {
	w     http.ResponseWriter
	flush *http.ResponseController
}

func newNamedEvents(w http.ResponseWriter) namedEvents {
	return namedEvents{w: w, flush: http.NewResponseController(w)}
}

// open sends the status.
func (s namedEvents) open() error {
	s.w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	s.w.WriteHeader(http.StatusOK)
	if s.flush.Flush() != nil {
		return errConnectionGone
	}
	return nil
}

// write sends one event in one write, as uvicorn sends one chunk for each.
func (s namedEvents) write(name string, data any) error {
	raw, err := marshal(data)
	if err != nil {
		return err
	}
	if _, err := s.w.Write(slices.Concat([]byte("event: "+name+"\ndata: "), raw, []byte("\n\n"))); err != nil {
		return errConnectionGone
	}
	if s.flush.Flush() != nil {
		return errConnectionGone
	}
	return nil
}

package wire

import (
	"net/http"
	"slices"
)

// Events writes a stream of server-sent events.
type Events struct {
	w     http.ResponseWriter
	flush *http.ResponseController
}

// NewEvents returns a stream that has not sent its status yet.
func NewEvents(w http.ResponseWriter) Events {
	return Events{w: w, flush: http.NewResponseController(w)}
}

// Open sends the status.
func (s Events) Open() error {
	s.w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	s.w.WriteHeader(http.StatusOK)
	if s.flush.Flush() != nil {
		return ErrConnectionGone
	}
	return nil
}

// Write sends one event. Those of the Messages and the Responses API have names, the others "".
func (s Events) Write(name string, data any) error {
	raw, err := Marshal(data)
	if err != nil {
		return err
	}
	return s.Raw(name, raw)
}

// Raw sends one event in one write, as uvicorn sends one chunk for each.
func (s Events) Raw(name string, data []byte) error {
	if name != "" {
		name = "event: " + name + "\n"
	}
	if _, err := s.w.Write(slices.Concat([]byte(name+"data: "), data, []byte("\n\n"))); err != nil || s.flush.Flush() != nil {
		return ErrConnectionGone
	}
	return nil
}

// Done ends a stream of chat or text.
func (s Events) Done() error { return s.Raw("", []byte("[DONE]")) }

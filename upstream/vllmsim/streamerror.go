package vllmsim

import (
	"errors"
	"net/http"
	"slices"

	"carryover/upstream/vllmsim/config"
)

// streamError answers with a stream that has nothing but an internal error, in the shape of the API at path.
func streamError(w http.ResponseWriter, path string, c *config.Config) error {
	e := internalError()
	switch path {
	case pathMessages:
		s := newMessageStream(w, nil)
		return errors.Join(s.open(), s.write("error", errorAnswer(e, path, c)))
	case pathResponses:
		s := newResponseStream(w, nil)
		return errors.Join(s.open(), s.fail(e))
	default:
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		_, err := w.Write(slices.Concat([]byte("data: "), errorEvent(e, c), []byte("\n\ndata: [DONE]\n\n")))
		return err
	}
}

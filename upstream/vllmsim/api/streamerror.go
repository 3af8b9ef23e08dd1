package api

import (
	"errors"
	"net/http"

	"carryover/upstream/vllmsim/config"
	"carryover/upstream/vllmsim/wire"
)

// StreamError answers with a stream that has nothing but an internal error, in the shape of the API at path.
func StreamError(w http.ResponseWriter, path string, c *config.Config) error {
	e := wire.InternalError()
	switch path {
	case wire.PathMessages:
		s := newMessageStream(w, nil)
		return errors.Join(s.Open(), s.Write("error", wire.ErrorAnswer(e, path, c)))
	case wire.PathResponses:
		s := newResponseStream(w, nil)
		return errors.Join(s.Open(), s.fail(e))
	default:
		s := wire.NewEvents(w)
		return errors.Join(s.Open(), s.Raw("", wire.ErrorEvent(e, c)), s.Done())
	}
}

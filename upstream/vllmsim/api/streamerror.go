package api

import (
	"net/http"

	"carryover/upstream/vllmsim/config"
	"carryover/upstream/vllmsim/wire"
)

// StreamError answers with a stream of one internal error, in the shape of the API at path.
func StreamError(w http.ResponseWriter, path string, c *config.Config) error {
	e, s := wire.InternalError(), wire.NewEvents(w)
	switch path {
	case wire.PathMessages:
		s.Write("error", wire.ErrorAnswer(e, path, c))
	case wire.PathResponses:
		(&responseStream{Events: s}).fail(e)
	default:
		s.Raw("", wire.ErrorEvent(e, c))
		return s.Done()
	}
	return s.Err
}

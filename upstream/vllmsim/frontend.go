package vllmsim

import (
	"net/http"
	"strconv"
	"sync/atomic"

	"carryover/upstream/vllmsim/bpe"
	"carryover/upstream/vllmsim/config"
	"carryover/upstream/vllmsim/engine"
	"carryover/upstream/vllmsim/fault"
)

// frontend answers the endpoints that clients use: answers of each API, the ids of a prompt, models.
type frontend struct {
	config  func() *config.Config
	engines func() []*engine.Engine // of every rank, as they are now
	tok     *bpe.Tokenizer
	holds   *engine.Holds
	turn    atomic.Int64 // counts requests that name no rank; they go to each rank in turn
}

func newFrontend(cfg func() *config.Config, engines func() []*engine.Engine, tok *bpe.Tokenizer, holds *engine.Holds) *frontend {
	return &frontend{config: cfg, engines: engines, tok: tok, holds: holds}
}

// serve answers a request if it is for an endpoint of this type, and reports whether it is.
func (s *frontend) serve(w http.ResponseWriter, req *http.Request, f *fault.Active) (done bool, err error) {
	switch req.Method + " " + req.URL.Path {
	case "POST " + pathChat, "POST " + pathCompletions:
		err = s.serveCompletion(w, req, f)
	case "POST " + pathChat + "/render", "POST " + pathCompletions + "/render":
		err = s.serveRender(w, req)
	case "POST " + pathMessages:
		err = s.serveMessages(w, req, f)
	case "POST " + pathMessagesCount:
		err = s.serveCount(w, req)
	case "POST " + pathMessagesRender:
		err = s.serveMessagesRender(w, req)
	case "POST " + pathResponses:
		err = s.serveResponses(w, req, f)
	case "POST " + pathResponsesRender:
		err = s.serveResponsesRender(w, req)
	case "POST /tokenize":
		err = s.serveTokenize(w, req)
	case "GET /v1/models":
		err = writeJSON(w, http.StatusOK, s.models())
	default:
		id, ok := storedResponse(req)
		if !ok {
			return false, nil
		}
		err = unknownResponse(id)
	}
	return true, err
}

// knownPath reports whether an endpoint of this type has the path, with whatever method.
func (s *frontend) knownPath(path string) bool {
	switch path {
	case pathChat, pathCompletions, pathChat + "/render", pathCompletions + "/render", "/tokenize", "/v1/models",
		pathMessages, pathMessagesCount, pathMessagesRender, pathResponses:
		return true
	default:
		_, _, stored := storedPath(path)
		return stored
	}
}

// engineFor picks the data-parallel rank: the one that the request names, or each in turn. A rank that is not a number is ignored.
func (s *frontend) engineFor(req *http.Request) (*engine.Engine, error) {
	engines := s.engines()
	rank, err := strconv.Atoi(req.Header.Get("X-Data-Parallel-Rank"))
	if err != nil {
		return engines[int(s.turn.Add(1)-1)%len(engines)], nil
	}
	if rank < 0 || rank >= len(engines) {
		return nil, badRequest("", "data_parallel_rank %d is out of range [0, %d).", rank, len(engines))
	}
	return engines[rank], nil
}

// readRequest parses a JSON body.
func readRequest(req *http.Request) (*apiRequest, error) {
	body, err := jsonBody(req)
	if err != nil {
		return nil, err
	}
	return parseBody(body)
}

// requestID returns the id of a completion for the client: from the header, from the body, or a random one.
func requestID(req *http.Request, r *apiRequest) string {
	if id := req.Header.Get("X-Request-Id"); id != "" {
		return id
	}
	if r.RequestID != "" {
		return r.RequestID
	}
	return randomHex(16)
}

package api

import (
	"cmp"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"

	"carryover/upstream/vllmsim/bpe"
	"carryover/upstream/vllmsim/config"
	"carryover/upstream/vllmsim/engine"
	"carryover/upstream/vllmsim/fault"
	"carryover/upstream/vllmsim/request"
	"carryover/upstream/vllmsim/wire"
)

// Endpoints answers the endpoints of clients: answers of each API, the ids of a prompt, models.
type Endpoints struct {
	config  func() *config.Config
	engines func() []*engine.Engine // current engine of every rank
	tok     *bpe.Tokenizer
	holds   *engine.Holds
	turn    atomic.Int64 // counts requests without a rank, which go to each rank in turn
}

// New returns the endpoints of an instance. holds stops hand-backs.
func New(cfg func() *config.Config, engines func() []*engine.Engine, tok *bpe.Tokenizer, holds *engine.Holds) *Endpoints {
	return &Endpoints{config: cfg, engines: engines, tok: tok, holds: holds}
}

// Serve answers a request for one of its endpoints. done is false for any other request.
func (s *Endpoints) Serve(w http.ResponseWriter, req *http.Request, f *fault.Active) (done bool, err error) {
	switch req.Method + " " + req.URL.Path {
	case "POST " + wire.PathChat, "POST " + wire.PathCompletions, "POST " + wire.PathMessages, "POST " + wire.PathResponses:
		err = s.serveAnswer(w, req, f)
	case "POST " + wire.PathChat + "/render", "POST " + wire.PathCompletions + "/render", "POST " + wire.PathMessages + "/render", "POST " + wire.PathResponses + "/render":
		err = s.serveRender(w, req)
	case "POST " + wire.PathMessagesCount:
		err = s.serveCount(w, req)
	case "POST /tokenize":
		err = s.serveTokenize(w, req)
	case "GET /v1/models":
		err = wire.WriteJSON(w, http.StatusOK, s.models())
	default:
		return false, nil
	}
	return true, err
}

// engineFor returns the data-parallel rank that the request names, or each rank in turn. It ignores a rank that is not a number.
func (s *Endpoints) engineFor(req *http.Request) (*engine.Engine, error) {
	engines := s.engines()
	rank, err := strconv.Atoi(req.Header.Get("X-Data-Parallel-Rank"))
	if err != nil {
		return engines[int(s.turn.Add(1)-1)%len(engines)], nil
	}
	if rank < 0 || rank >= len(engines) {
		return nil, wire.BadRequest("", "data_parallel_rank %d is out of range [0, %d).", rank, len(engines))
	}
	return engines[rank], nil
}

func readRequest(req *http.Request) (*request.Completion, error) {
	body, err := wire.ReadJSON(req)
	if err != nil {
		return nil, err
	}
	return request.Parse(body)
}

// read reads a request of any API, at its path or one below it. asked is the body of a Responses request, nil for the others.
func (s *Endpoints) read(req *http.Request) (c *completion, asked *request.Responses, err error) {
	c = &completion{endpoints: s, chat: true}
	switch path := req.URL.Path; {
	case strings.HasPrefix(path, wire.PathResponses):
		if asked, c.request, err = s.readTurn(req); err == nil {
			c.id, c.inside = asked.RequestID, "_0" // inside the engine a request is the first turn of a conversation
		}
		return c, asked, err
	case strings.HasPrefix(path, wire.PathMessages):
		var m *request.Messages
		if m, err = request.ReadMessages(req); err == nil {
			c.request, err = m.ChatRequest(s.config().MergeSystem)
		}
	default:
		c.chat = strings.HasPrefix(path, wire.PathChat)
		if c.request, err = readRequest(req); err == nil {
			err = c.request.Validate(c.chat)
		}
	}
	if err != nil {
		return nil, nil, err
	}
	c.id = "cmpl-" + cmp.Or(req.Header.Get("X-Request-Id"), wire.RandomHex(16))
	if c.chat {
		c.id = "chat" + c.id
	}
	return c, nil, nil
}

package api

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"carryover/upstream/vllmsim/engine"
	"carryover/upstream/vllmsim/fault"
	"carryover/upstream/vllmsim/request"
	"carryover/upstream/vllmsim/wire"
)

// completion is one HTTP request for an answer, inside an engine.
type completion struct {
	endpoints *Endpoints
	engine    *engine.Engine
	request   *request.Completion
	chat      bool
	id        string // for the client
	inside    string // suffix of the ids inside the engine
	created   int64
	prompts   [][]int32
	choices   []*choice
	fault     *fault.Active
	given     bool // the prompt came as ids
	thoughts  int  // tokens of thoughts with text
}

// choice is one sequence: one of n for a prompt, or one prompt of a list.
type choice struct {
	index      int
	prompt     []int32
	engineReq  *engine.Request
	run        *engine.Run
	out        *output
	ids        []int32
	said       []int32 // ids that the answer reports for the last id
	told       []int32 // ids that the answer reports for all ids
	logprobs   []tokenLogprob
	finish     string // empty while the sequence is not finished
	stopReason any
	params     *engine.ParamsOut
}

func (s *Endpoints) serveAnswer(w http.ResponseWriter, req *http.Request, f *fault.Active) error {
	c, asked, err := s.read(req)
	if err != nil {
		return err
	}
	c.fault = f
	switch {
	case asked != nil:
		t := &responseTurn{completion: c, asked: asked}
		return c.serve(w, req, t.respond, t.stream)
	case req.URL.Path == wire.PathMessages:
		t := &messageTurn{c}
		return c.serve(w, req, t.respond, t.stream)
	}
	return c.serve(w, req, c.respond, c.stream)
}

// serve runs a request. whole answers in one piece, stream in events.
func (c *completion) serve(w http.ResponseWriter, req *http.Request, whole, stream func(context.Context, http.ResponseWriter) error) error {
	e, err := c.endpoints.engineFor(req)
	if err != nil {
		return err
	}
	c.engine, c.created = e, time.Now().Unix()
	if err := c.prepare(); err != nil {
		e.Connector.Rejected(c.request.Params)
		return err
	}
	ctx, cancel := context.WithCancelCause(req.Context())
	defer cancel(nil)
	defer context.AfterFunc(e.Ctx, func() { cancel(context.Cause(e.Ctx)) })()
	defer c.abandon(ctx)
	if c.request.Stream {
		return stream(ctx, w)
	}
	return whole(ctx, w)
}

func (c *completion) prepare() error {
	s, r := c.endpoints, c.request
	if err := s.checkModel(r.Model); err != nil {
		return err
	}
	var err error
	var chat input
	if c.chat {
		chat, err = s.chatPrompt(r)
		c.prompts = [][]int32{chat.ids}
	} else {
		c.prompts, err = s.textPrompts(r.Prompt)
	}
	if err != nil {
		return err
	}
	params := r.Params
	if r.BeamSearch {
		params = nil // beam search has no KV transfer
	}
	c.given = chat.forwarded
	computed, handsBack := c.prompts, !c.chat && r.HandsBack(wire.PathCompletions)
	if (chat.forwarded || handsBack) && c.fault.Is(fault.OtherIDs) {
		computed = [][]int32{fault.ReplaceID(c.prompts[0])}
	}
	for p, prompt := range c.prompts {
		limit, err := s.outputLimit(r, prompt)
		if err != nil {
			return err
		}
		for n := range r.Children() {
			ch := &choice{index: len(c.choices), prompt: computed[p], out: newOutput(s.tok, r, s.config().EmptyDeltas)}
			ch.engineReq = &engine.Request{
				ID: c.engineID(p, n), Prompt: prompt, Computed: computed[p], Media: chat.media, Params: params,
				Salt: r.Salt(s.config()), Adapter: r.Adapter(s.config()), Seed: weights(s.config(), r.Model),
				HandsBack: handsBack, Releases: !c.chat && r.Releases(wire.PathCompletions),
				Fault: c.fault, Holds: s.holds, Slowness: c.fault.Slowness(), Sibling: len(c.choices) > 0,
				MaxTokens: limit, MinTokens: r.MinTokens, StopIDs: r.StopTokenIDs, IgnoreEOS: r.IgnoreEOS, Variant: n,
			}
			c.choices = append(c.choices, ch)
		}
	}
	c.prompts = computed
	return nil
}

// engineID returns the id of one child inside the engine. Random digits at the end keep equal request ids from colliding (#27987).
func (c *completion) engineID(prompt, child int) string {
	id := c.id
	if !c.chat {
		id += "-" + strconv.Itoa(prompt)
	}
	if c.request.Children() > 1 {
		id = strconv.Itoa(child) + "_" + id
	}
	return id + c.inside + "-" + wire.RandomHex(4)
}

// advance samples one token of ch. The first call starts its run.
func (c *completion) advance(ctx context.Context, ch *choice) (piece, error) {
	if ch.run == nil {
		run, err := c.engine.Start(ctx, ch.engineReq)
		if err != nil {
			return piece{}, err
		}
		ch.run = run
	}
	s, err := ch.run.Next(ctx)
	if err != nil {
		return piece{}, err
	}
	ch.ids = append(ch.ids, s.ID)
	if c.request.Alternatives >= 0 {
		ch.logprobs = append(ch.logprobs, logprob(c.endpoints.tok, s.ID, c.request.Alternatives))
	}
	hidden := s.StopReason != nil && !c.request.IncludeStop
	p := ch.out.push(s.ID, s.Finish != "", hidden)
	if p.reasoning != nil && *p.reasoning != "" {
		c.thoughts++
	}
	switch {
	case p.stop != nil:
		// The detokenizer ends the answer. If the engine has not finished the sequence, it gets an abort.
		ch.finish, ch.stopReason = "stop", *p.stop
		if s.Finish == "" {
			ch.run.Abort()
		}
	case s.Finish != "":
		ch.finish, ch.stopReason = ch.out.finishReason(s.Finish, namedTool(c.request.ToolChoice)), s.StopReason
	}
	ch.said = c.fault.Tells(len(ch.ids)-1, s.ID, ch.finish != "")
	ch.told = append(ch.told, ch.said...)
	ch.params = s.Params
	return p, nil
}

func (c *completion) abandon(ctx context.Context) {
	cause := context.Cause(ctx)
	if cause == nil {
		cause = engine.ErrAborted
	}
	for _, ch := range c.choices {
		if ch.run != nil {
			ch.run.Drop(cause)
		}
	}
}

func (c *completion) respond(ctx context.Context, w http.ResponseWriter) error {
	if err := c.finish(ctx); err != nil {
		return err
	}
	return wire.WriteJSON(w, http.StatusOK, c.answer())
}

func (c *completion) finish(ctx context.Context) error {
	for _, ch := range c.choices {
		for ch.finish == "" {
			if _, err := c.advance(ctx, ch); err != nil {
				return failure(err)
			}
		}
	}
	return nil
}

// failure returns the client's error for a failed run: a 500 if the engine reported an error, and wire.ErrConnectionGone if the request was
// cancelled or the process is gone.
func failure(err error) error {
	if errors.Is(err, engine.ErrLoadFailed) || errors.Is(err, engine.ErrEngineDead) {
		return wire.InternalError()
	}
	return wire.ErrConnectionGone
}

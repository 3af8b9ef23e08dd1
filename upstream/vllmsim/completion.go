package vllmsim

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"carryover/upstream/vllmsim/engine"
	"carryover/upstream/vllmsim/fault"
	"carryover/upstream/vllmsim/template"
)

// completion is one HTTP request for an answer on its way through an engine.
type completion struct {
	instance *Instance
	engine   *engine.Engine
	request  *apiRequest
	chat     bool
	id       string // the id that the client sees
	inside   string // suffix that the engine's ids have behind the id
	created  int64
	prompts  [][]int32
	choices  []*choice
	fault    *fault.Active
	given    bool // the ids of the prompt came with the request
}

// choice is one sequence: one of n for a prompt, or one prompt of a list.
type choice struct {
	index      int
	prompt     []int32
	engineReq  *engine.Request
	run        *engine.Run
	out        *output
	ids        []int32
	said       []int32 // ids that the answer reports for the last of ids
	told       []int32 // ids that the answer reports for all of ids
	logprobs   []tokenLogprob
	finish     string // empty while the sequence is not finished
	stopReason any
	params     *engine.ParamsOut
}

func (i *Instance) serveCompletion(w http.ResponseWriter, req *http.Request, f *fault.Active) error {
	r, err := readRequest(req)
	if err != nil {
		return err
	}
	chat := req.URL.Path == pathChat
	if err := r.validate(chat); err != nil {
		return err
	}
	c := &completion{instance: i, request: r, chat: chat, fault: f, id: "cmpl-" + requestID(req, r)}
	if chat {
		c.id = "chat" + c.id
	}
	return c.serve(w, req, c.respond, c.stream)
}

// serve takes a request through an engine. whole answers it in one piece, stream in events.
func (c *completion) serve(w http.ResponseWriter, req *http.Request, whole, stream func(context.Context, http.ResponseWriter) error) error {
	e, err := c.instance.engineFor(req)
	if err != nil {
		return err
	}
	c.engine, c.created = e, time.Now().Unix()
	if err := c.prepare(); err != nil {
		e.Connector.Rejected(c.request.params)
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

// prepare renders the prompts and lays out the choices.
func (c *completion) prepare() error {
	i, r := c.instance, c.request
	if err := i.checkModel(r.Model); err != nil {
		return err
	}
	var err error
	var chat input
	if c.chat {
		chat, err = i.chatPrompt(r)
		c.prompts = [][]int32{chat.ids}
	} else {
		c.prompts, err = i.textPrompts(r.Prompt)
	}
	if err != nil {
		return err
	}
	params := r.params
	if r.BeamSearch {
		params = nil // the beam search path has no KV transfer
	}
	c.given = chat.forwarded
	computed, handsBack := c.prompts, !c.chat && r.handsBack(pathCompletions)
	if (chat.forwarded || handsBack) && c.fault.Is(fault.OtherIDs) {
		computed = [][]int32{fault.ReplaceID(c.prompts[0])}
	}
	for p, prompt := range c.prompts {
		limit, err := i.outputLimit(r, prompt)
		if err != nil {
			return err
		}
		for n := range r.children() {
			ch := &choice{index: len(c.choices), prompt: computed[p], out: newOutput(i.tok, r, i.config().EmptyDeltas)}
			ch.engineReq = &engine.Request{
				ID: c.engineID(p, n), Prompt: prompt, Computed: computed[p], Media: chat.media, Params: params,
				Salt: r.cacheSalt(i.config()), Adapter: r.adapter(i.config()), Seed: weights(i.config(), r.Model),
				LegKind:   engine.LegKind{HandsBack: handsBack, Releases: !c.chat && r.releases(pathCompletions)},
				Simulated: engine.Simulated{Fault: c.fault, Holds: &i.holds, Slowness: c.fault.Slowness()}, Sibling: len(c.choices) > 0,
				Sampling: engine.Sampling{MaxTokens: limit, MinTokens: r.MinTokens, StopIDs: r.StopTokenIDs, IgnoreEOS: r.IgnoreEOS, Variant: n},
			}
			c.choices = append(c.choices, ch)
		}
	}
	c.prompts = computed
	return nil
}

// advance samples one token of ch, and first starts its run if that has not begun.
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
	if c.request.logprobs >= 0 {
		ch.logprobs = append(ch.logprobs, logprob(c.instance.tok, s.ID, c.request.logprobs))
	}
	hidden := s.StopReason != nil && !c.request.IncludeStop
	p := ch.out.push(s.ID, s.Finish != "", hidden)
	switch {
	case p.stop != nil:
		// The detokenizer ends the answer here. If the engine has not finished the sequence itself, it gets an abort.
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

// abandon ends the runs that are still under way after an error or after the client has gone.
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

// kvParams returns the params of the answer as a whole: those of the last child of n > 1, or of the first prompt of a list.
// The blocks of the others stay pinned until their deadline (vllm#43509).
func (c *completion) kvParams() *engine.ParamsOut {
	if len(c.prompts) > 1 {
		return c.choices[0].params
	}
	return c.choices[len(c.choices)-1].params
}

// answeredParams returns the params that the client gets, with the ids of the output
// if an engine plug-in adds them.
func (c *completion) answeredParams() *engine.ParamsOut {
	p := c.kvParams()
	if p == nil || p.Other != nil || !c.instance.config().OutputTokenIDs {
		return p
	}
	with := *p
	with.OutputTokenIDs = c.choices[len(c.choices)-1].told
	return &with
}

func (c *completion) usage() usage {
	var u usage
	for _, ch := range c.choices {
		u.CompletionTokens += len(ch.ids)
	}
	for _, prompt := range c.prompts {
		u.PromptTokens += len(prompt)
	}
	u = c.counted(u)
	if c.instance.config().PromptTokensDetails {
		u.PromptDetails = c.promptDetails()
	}
	return u
}

// continuous returns the usage of one choice so far, without cached tokens (chat_completion and completion/serving.py, 0.32).
func (c *completion) continuous(ch *choice) usage {
	return c.counted(usage{PromptTokens: len(ch.prompt), CompletionTokens: len(ch.ids)})
}

// counted returns u with its total.
func (c *completion) counted(u usage) usage {
	if c.fault.Is(fault.OtherUsage) {
		u.PromptTokens++
	}
	u.TotalTokens = u.PromptTokens + u.CompletionTokens
	return u
}

// promptDetails reports cached tokens as 0.32 does: prefill's own number if a leg forwards it, otherwise what this engine found in
// its prefix cache and read from others. Text completions leave created_cache_tokens null.
func (c *completion) promptDetails() *promptDetails {
	d := &promptDetails{}
	created := 0
	for _, ch := range c.choices {
		if ch.run == nil {
			continue
		}
		cached := ch.run.CachedTokens()
		size := c.engine.Cfg.BlockSize
		created += max(0, len(ch.prompt)/size*size-cached)
		d.CachedTokens += cached
	}
	if cached, ok := c.request.params.Integer("remote_prefill_cached_tokens"); ok && c.request.params.Decodes() {
		d.CachedTokens = cached
	}
	if c.chat {
		d.CreatedCacheTokens = &created
	}
	return d
}

// respond runs all choices to their end and answers in one piece.
func (c *completion) respond(ctx context.Context, w http.ResponseWriter) error {
	for _, ch := range c.choices {
		for ch.finish == "" {
			if _, err := c.advance(ctx, ch); err != nil {
				return failure(err)
			}
		}
	}
	params, err := faultParams(c.fault, c.engine, c.answeredParams())
	if err != nil {
		return err
	}
	if c.chat {
		return writeJSON(w, http.StatusOK, c.chatAnswer(params))
	}
	return writeJSON(w, http.StatusOK, c.textAnswer(params))
}

// failure returns the error that the client of a failed run gets: a 500 if the engine has reported one, and errConnectionGone if the
// request was cancelled or the process is gone.
func failure(err error) error {
	if errors.Is(err, engine.ErrLoadFailed) || errors.Is(err, engine.ErrEngineDead) {
		return internalError()
	}
	return errConnectionGone
}

func (c *completion) chatAnswer(params []byte) chatAnswer {
	a := chatAnswer{
		ID: c.id, Object: "chat.completion", Created: c.created, Model: c.instance.config().Answered(c.request.Model),
		SystemFingerprint: c.instance.config().Fingerprint(), Usage: c.usage(), KVTransferParams: params,
	}
	if c.idEcho() {
		a.PromptTokenIDs = c.prompts[0]
	}
	for _, ch := range c.choices {
		a.Choices = append(a.Choices, chatChoice{
			Index: ch.index, Message: ch.message(c.request), Logprobs: c.chatLogprobs(ch.logprobs),
			FinishReason: ch.finish, StopReason: ch.stopReason, TokenIDs: c.idsIfAsked(ch.told),
			WeightVersions: c.instance.config().NullSince033(),
		})
	}
	return a
}

// message returns the whole message of a choice.
func (ch *choice) message(r *apiRequest) chatMessage {
	m := chatMessage{Role: "assistant", ToolCalls: ch.out.calls}
	content := ch.out.content.String()
	if r.Echo && r.ContinueFinal && len(*r.Messages) > 0 {
		if final, err := (*r.Messages)[len(*r.Messages)-1].Text(); err == nil {
			content = strings.ReplaceAll(final, template.MediaMark, template.ImageText) + content
		}
	}
	reasoning := ch.out.reasoning.String()
	if reasoning != "" && (r.IncludeReasoning == nil || *r.IncludeReasoning) {
		m.Reasoning = &reasoning
	}
	if content != "" || len(m.ToolCalls) == 0 && reasoning == "" {
		m.Content = &content
	}
	return m
}

func (c *completion) textAnswer(params []byte) textAnswer {
	a := textAnswer{
		ID: c.id, Object: "text_completion", Created: c.created, Model: c.instance.config().Answered(c.request.Model),
		SystemFingerprint: c.instance.config().Fingerprint(), Usage: c.usage(), KVTransferParams: params,
	}
	for _, ch := range c.choices {
		text := ch.out.content.String()
		if c.request.Echo {
			text = c.instance.tok.Decode(ch.prompt) + text
		}
		tc := textChoice{
			Index: ch.index, Text: text, Logprobs: c.textLogprobs(ch.logprobs, 0), FinishReason: ch.finish,
			StopReason: ch.stopReason, TokenIDs: c.idsIfAsked(ch.told),
			WeightVersions: c.instance.config().NullSince033(),
		}
		if c.idEcho() {
			tc.PromptTokenIDs = ch.prompt
		}
		a.Choices = append(a.Choices, tc)
	}
	return a
}

// idEcho reports whether the answer contains the ids of the prompt.
func (c *completion) idEcho() bool { return c.request.ReturnTokenIDs && !c.fault.Is(fault.NoIDEcho) }

func (c *completion) idsIfAsked(ids []int32) []int32 {
	if !c.request.ReturnTokenIDs {
		return nil
	}
	return ids
}

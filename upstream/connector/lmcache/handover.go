package lmcache

import (
	"errors"
	"fmt"
	"strings"

	"carryover/sse/rawjson"
	"carryover/upstream"
	"carryover/upstream/body"
)

// handOver reads prefill's answer and decides how decode continues it.
func (a *attempt) handOver(answer upstream.PrefillAnswer) (*upstream.Handover, error) {
	f, err := readFirst(answer, len(a.sent))
	if err != nil {
		return nil, fmt.Errorf("hand-over: %w", err)
	}
	h := &upstream.Handover{Cached: f.cached(), Bound: true}
	own := func([]byte) upstream.LegPlan { return a.ownLeg() }
	if a.begins {
		h.Leg = own
		return h, nil
	}
	goOn := func([]byte) upstream.LegPlan { return a.onwardLeg(f.token, a.tag()) }
	shape := a.shape(answer.ID, &f)
	switch wayOn(a.Request, a.budget, f.text, f.finish != "") {
	case onward:
		h.Leg, h.Rewrite = goOn, &continuation{shape: shape, first: f, stream: a.Request.Stream()}
		if a.Request.Stream() {
			h.Head, err = shape.head(&f, false)
		}
	case complete:
		h.Leg, h.Take = goOn, a.takeLeg(f.token)
		h.Whole, err = a.whole(shape, &f)
	case again:
		h.Leg, h.Take = own, a.takeLeg(f.token)
	}
	if err != nil {
		return nil, fmt.Errorf("hand-over: %w", err)
	}
	return h, nil
}

// whole returns prefill's answer in the client's form, where prefill has all of it.
func (a *attempt) whole(s *shape, f *first) ([]byte, error) {
	if !a.Request.Stream() {
		body, ok := s.answer(&f.body, nil)
		if !ok {
			return nil, errUnreadable
		}
		return body, nil
	}
	head, err := s.head(f, true)
	if err != nil {
		return nil, err
	}
	return append(head, s.tail(f)...), nil
}

var errUnreadable = errors.New("the answer is not that of a text completion")

// shape has the values that all parts of an answer share, and the options that the client has asked for.
type shape struct {
	chat            bool
	id              []byte // JSON, as are created, model and ids
	created, model  []byte
	ids             []byte // ids of the prompt, nil unless the client wants ids
	counts, running bool   // the stream has its usage at the end (counts), and in each event too (running)
	prompt          int    // tokens of the prompt
	top             int    // how many of the likeliest tokens a chat shows for each token, -1 for all
}

// shape returns the shape of the answer that prefill has begun.
func (a *attempt) shape(id string, f *first) *shape {
	s := &shape{
		chat: a.Request.API() == body.Chat, created: f.body.Get("created"), model: f.body.Get("model"), top: a.top(),
		counts: a.Request.WantsUsage(), prompt: len(a.sent),
	}
	if id == "" {
		id = "cmpl-" + a.RequestID
	}
	if s.chat {
		id = "chatcmpl-" + strings.TrimPrefix(id, "cmpl-") // both APIs put their prefix before the request id
	}
	s.id = rawjson.Quote(id)
	if _, ok := rawjson.Integer(s.created); !ok {
		s.created = []byte("0")
	}
	if !isText(s.model) {
		s.model = rawjson.Quote(a.Request.Model())
	}
	if a.Request.WantsTokenIDs() {
		s.ids = rawjson.AppendIDs(nil, a.sent)
	}
	options, _ := a.Request.Member("stream_options")
	if o, err := rawjson.ParseObject(options); err == nil {
		s.running = s.counts && string(o.Get("continuous_usage_stats")) == "true"
	}
	if only, _ := a.Request.Member("logprob_token_ids"); !off(only) {
		s.top = -1
	}
	return s
}

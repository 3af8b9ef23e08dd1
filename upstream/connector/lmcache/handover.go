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
	h := &upstream.Handover{Cached: f.cached(), Bound: true, Rescue: a.rescue}
	switch {
	case a.begins:
		h.Leg = func([]byte) upstream.LegPlan { return a.ownLeg(a.params) }
	case f.ended || !continues(a.Request, f.text):
		// A leg without the first token would leave the last chunk.
		h.Leg, h.Left = func([]byte) upstream.LegPlan { return a.ownLeg(nil) }, true
	default:
		c := a.continuation(answer.ID, f)
		h.Leg, h.Rewrite = func([]byte) upstream.LegPlan { return a.onwardLeg(f.token) }, c
		if c.stream {
			h.Head = c.head()
		}
	}
	return h, nil
}

var errUnreadable = errors.New("the answer is not that of a text completion")

// continuation makes the client's answer from decode's answer, which continues after the first token. It belongs to one answer.
type continuation struct {
	first
	chat, stream   bool
	id             []byte // JSON, as are created, model and ids
	created, model []byte
	ids            []byte // ids of the prompt, nil unless the client wants ids
	running        bool   // the stream has its usage in each event
	prompt         int    // tokens of the prompt
	top            int    // how many of the likeliest tokens a chat shows for each token, -1 for all
}

// continuation returns the rewriting of the answer that prefill has begun.
func (a *attempt) continuation(id string, f first) *continuation {
	c := &continuation{
		first: f, chat: a.Request.API() == body.Chat, stream: a.Request.Stream(), created: f.body.Get("created"), model: f.body.Get("model"),
		top: a.top(), prompt: len(a.sent),
	}
	if id == "" {
		id = "cmpl-" + a.RequestID
	}
	if c.chat {
		id = "chatcmpl-" + strings.TrimPrefix(id, "cmpl-") // both APIs put their prefix before the request id
	}
	c.id = rawjson.Quote(id)
	if _, ok := rawjson.Integer(c.created); !ok {
		c.created = []byte("0")
	}
	if !isText(c.model) {
		c.model = rawjson.Quote(a.Request.Model())
	}
	if a.Request.WantsTokenIDs() {
		c.ids = rawjson.AppendIDs(nil, a.sent)
	}
	options, _ := a.Request.Member("stream_options")
	if o, err := rawjson.ParseObject(options); err == nil {
		c.running = a.Request.WantsUsage() && string(o.Get("continuous_usage_stats")) == "true"
	}
	if only, _ := a.Request.Member("logprob_token_ids"); !off(only) {
		c.top = -1
	}
	return c
}

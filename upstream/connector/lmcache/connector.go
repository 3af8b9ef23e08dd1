package lmcache

import (
	"context"
	"errors"
	"fmt"

	"carryover/sse/rawjson"
	"carryover/upstream"
)

// Connector is LMCache's P/D mode, with the decode instances' receivers. All fields are read only.
type Connector struct {
	// Expect waits for so many notifications that name the id. It is called before the prefill leg is sent.
	Expect func(id string, count int) upstream.Arrival
	// NewID returns an id that no other attempt has, of this process or another.
	NewID func() string
	// Receivers are those of decode instances, by upstream.Instance.Authority; Otherwise is that of the others, the zero value for none.
	Receivers map[string]Receiver
	Otherwise Receiver
	// Notifications is how many say that the KV of a prompt has arrived, unless the prefill instance has a number of its own
	// (upstream.Instance.Notices); 0 is one for each rank, which the init ports count. Models with MLA send one.
	Notifications int
	// DecodeUnready sends the decode leg although no notification has come in time. Decode computes all of the prompt then.
	DecodeUnready bool
	// MaxPromptTokens is max_num_batched_tokens of the prefill instances: LMCache 0.5.6 never announces the KV of a longer prompt
	// (measured). 0 is no bound.
	MaxPromptTokens int
	// ChunkTokens is chunk_size of the engines' LMCache, or a multiple of it; 0 means 256, its default.
	ChunkTokens int
	// ChatAtDecode has decode answer all chats by its own chat endpoint, with its parsers of tool calls and reasoning.
	ChatAtDecode bool
}

// Traits says that legs carry token ids. Prefill reads nothing of decode.
func (*Connector) Traits() upstream.Traits { return upstream.Traits{IDs: true} }

// Plan has prefill compute first, waits until its KV has arrived, and has decode go on behind the first token. What can't
// run so goes to decode alone.
func (c *Connector) Plan(t upstream.Transfer) (upstream.Plan, error) {
	a := &attempt{Transfer: t, sent: t.PromptIDs}
	to, why, ok := c.admit(a)
	if !ok {
		return upstream.Plan{Order: upstream.DecodeAlone, Why: why}, nil
	}
	id := c.NewID()
	a.salt, a.params = rawjson.Quote(c.NewID()), tagged(id)
	arrival := c.Expect(id, c.notices(t.Prefill, to))
	return upstream.Plan{
		Order:    upstream.AfterReady,
		Prefill:  a.prefillLeg(to.params(id)),
		Handover: a.handOver,
		Ready:    func(ctx context.Context) error { return c.ready(ctx, arrival, a) },
		Arrived:  arrival.Ready,
		Late:     func() upstream.LegPlan { return a.lateLeg(rawjson.Quote(c.NewID())) },
		Close:    arrival.Close,
	}, nil
}

// admit says where the KV of an attempt goes and of how many tokens. ok is false where decode serves it alone, why perhaps a word for it.
func (c *Connector) admit(a *attempt) (to Receiver, why string, ok bool) {
	for _, name := range []string{upstream.WhyTruncate, upstream.WhyPromptLogprobs} {
		// The legs' prompts would be cut differently; all of the prompt is to be computed.
		if raw, _ := a.Request.Member(name); !rawjson.IsNull(raw) {
			return to, name, false
		}
	}
	if raw, _ := a.Request.Member("suffix"); a.Request.API() == upstream.Text && !rawjson.IsNull(raw) {
		return to, "", false // the answer's place is not behind the ids
	}
	if to, ok = c.receiver(a.Decode); !ok {
		return to, whyReceiver, false
	}
	if a.budget, why, ok = budgetOf(&a.Transfer); !ok {
		return to, why, false
	}
	if a.begins = beginsAtDecode(a.Request, c.ChatAtDecode); a.begins {
		// Decode looks for all ids of its prompt but the last, so that it takes whole chunks and leaves one that is not.
		chunk := c.chunk()
		a.sent = a.sent[:max(0, len(a.sent)-1)/chunk*chunk]
	}
	switch n := len(a.sent); {
	case n == 0:
		return to, whyShort, false
	case c.MaxPromptTokens > 0 && n > c.MaxPromptTokens:
		return to, whyLong, false
	}
	return to, "", true
}

func (c *Connector) chunk() int {
	const usual = 256 // config.py, LMCache 0.5.6
	if c.ChunkTokens > 0 {
		return c.ChunkTokens
	}
	return usual
}

// notices is how many notifications the KV of one prompt has.
func (c *Connector) notices(prefill *upstream.Instance, to Receiver) int {
	switch {
	case prefill.Notices > 0:
		return prefill.Notices
	case c.Notifications > 0:
		return c.Notifications
	}
	return len(to.InitPorts)
}

// ready waits for the KV.
func (c *Connector) ready(ctx context.Context, arrival upstream.Arrival, a *attempt) error {
	err := arrival.Ready(ctx)
	late := ctx.Err() != nil && errors.Is(context.Cause(ctx), upstream.ErrNotReady)
	switch {
	case err == nil:
		return nil
	case c.DecodeUnready && (late || ctx.Err() == nil):
		a.unready = true // decode finds no chunk, whose bytes may still be on their way, and computes them
		return nil
	case late:
		return &upstream.LegError{
			Role: upstream.RoleDecode, Instance: a.Decode.Name, Kind: upstream.Timeout, Sent: true,
			Err: fmt.Errorf("%w, and no prefill worker has said so: prompts longer than prefill's max_num_batched_tokens are never announced"+
				" (lmcache.max_prompt_tokens); check pd_proxy_host and pd_proxy_port of prefill's LMCache", upstream.ErrNotReady),
		}
	}
	return err
}

var errKeepsNothing = errors.New("LMCache leaves nothing for a next turn")

// Keep keeps nothing: prefill has its own prefix cache, and reads none of decode's KV.
func (*Connector) Keep([]byte, int) (upstream.Kept, error) { return upstream.Kept{}, errKeepsNothing }

// Release has nothing to release.
func (*Connector) Release(upstream.TicketOffer, string) (upstream.ReleaseLeg, error) {
	return upstream.ReleaseLeg{}, errKeepsNothing
}

// HandBack has nothing to hand back.
func (*Connector) HandBack(upstream.TicketOffer, string, string) (upstream.ReleaseLeg, error) {
	return upstream.ReleaseLeg{}, errKeepsNothing
}

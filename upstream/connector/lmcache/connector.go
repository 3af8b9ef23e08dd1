package lmcache

import (
	"context"
	"errors"
	"fmt"

	"carryover/sse/rawjson"
	"carryover/upstream"
	"carryover/upstream/body"
)

// Connector is LMCache's P/D mode, with the receivers of the decode instances. No field may change after the first use.
type Connector struct {
	// Expect begins to wait for count notifications that name the id. It is called before the prefill leg is sent.
	Expect func(id string, count int) upstream.Arrival
	// NewID returns an id that no other attempt has, neither of this process nor of another.
	NewID func() string
	// Receivers has the receivers of decode instances by upstream.Instance.Authority. Otherwise is the receiver of all other decode
	// instances; its zero value means that they have none.
	Receivers map[string]Receiver
	Otherwise Receiver
	// Notifications is how many notifications the KV of one prompt has, for prefill instances without a number of their own
	// (upstream.Instance.Notices). 0 means one for each rank, as many as there are init ports. With MLA models there is one.
	Notifications int
	// DecodeUnready sends the decode leg even if the notifications have not come in time. Decode then computes the whole prompt.
	DecodeUnready bool
	// MaxPromptTokens is max_num_batched_tokens of the prefill instances: LMCache 0.5.6 never announces the KV of a longer prompt
	// (measured). 0 means no bound.
	MaxPromptTokens int
	// ChunkTokens is chunk_size of the engines' LMCache, or a multiple of it; 0 means 256, its default.
	ChunkTokens int
	// ChatAtDecode sends all chats to decode's chat endpoint, which has the parsers of tool calls and reasoning.
	ChatAtDecode bool
}

// Traits says that legs carry token ids. Prefill reads no KV of decode, so there are no tickets.
func (*Connector) Traits() upstream.Traits { return upstream.Traits{IDs: true} }

// Plan has prefill compute first, waits until the KV has arrived at decode, and has decode continue after the first token. A turn that
// can't run so goes to decode alone.
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

// admit returns the receiver of an attempt's KV, and decides which tokens prefill computes. ok is false if decode serves the turn alone;
// why may then name the reason.
func (c *Connector) admit(a *attempt) (to Receiver, why string, ok bool) {
	for _, name := range []string{body.WhyTruncate, body.WhyPromptLogprobs} {
		// With truncation each leg would cut its prompt differently. Logprobs of the prompt need decode to compute all of it.
		if raw, _ := a.Request.Member(name); !rawjson.IsNull(raw) {
			return to, name, false
		}
	}
	if raw, _ := a.Request.Member("suffix"); a.Request.API() == body.Text && !rawjson.IsNull(raw) {
		return to, "", false // the answer does not follow the ids, but stands between prompt and suffix
	}
	if to, ok = c.receiver(a.Decode); !ok {
		return to, whyReceiver, false
	}
	if a.budget, why, ok = budgetOf(&a.Transfer); !ok {
		return to, why, false
	}
	if a.begins = beginsAtDecode(a.Request, c.ChatAtDecode); a.begins {
		// Decode looks for all ids of its prompt except the last, and takes only whole chunks of them. So prefill sends only these.
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

// notices returns how many notifications the KV of one prompt has.
func (c *Connector) notices(prefill *upstream.Instance, to Receiver) int {
	switch {
	case prefill.Notices > 0:
		return prefill.Notices
	case c.Notifications > 0:
		return c.Notifications
	}
	return len(to.InitPorts)
}

// ready waits until the KV has arrived.
func (c *Connector) ready(ctx context.Context, arrival upstream.Arrival, a *attempt) error {
	err := arrival.Ready(ctx)
	late := ctx.Err() != nil && errors.Is(context.Cause(ctx), upstream.ErrNotReady)
	switch {
	case err == nil:
		return nil
	case c.DecodeUnready && (late || ctx.Err() == nil):
		a.unready = true // decode's leg must find no chunk, because bytes may still be on their way: decode computes the prompt
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

var errNoTickets = errors.New("LMCache leaves nothing for a next turn")

// ParseTicket always returns an error: prefill has its own prefix cache, and reads no KV of decode.
func (*Connector) ParseTicket([]byte, int) (upstream.TicketParams, error) {
	return upstream.TicketParams{}, errNoTickets
}

// Release has nothing to release.
func (*Connector) Release(upstream.TicketOffer, string) (upstream.ReleaseLeg, error) {
	return upstream.ReleaseLeg{}, errNoTickets
}

// HandBack has nothing to hand back.
func (*Connector) HandBack(upstream.TicketOffer, string, string) (upstream.ReleaseLeg, error) {
	return upstream.ReleaseLeg{}, errNoTickets
}

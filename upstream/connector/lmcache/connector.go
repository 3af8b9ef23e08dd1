package lmcache

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"carryover/sse/rawjson"
	"carryover/upstream"
	"carryover/upstream/body"
	"carryover/upstream/connector"
)

// Connector is LMCache's P/D mode, with the receivers of the decode instances. No field may change after the first use.
type Connector struct {
	connector.NoTickets
	// Expect begins to wait for count notifications that name the id. It is called before the prefill leg is sent.
	Expect func(id string, count int) upstream.Arrival
	// NewID returns an id that no other attempt of any process has.
	NewID func() string
	// Receivers has the complete receivers of decode instances by upstream.Instance.Authority.
	Receivers map[string]Receiver
	// Notifications is how many notifications the KV of one prompt has. 0 means one for each init port, which is one for each rank. With MLA
	// models there is one.
	Notifications int
	// MaxPromptTokens is max_num_batched_tokens of the prefill instances: LMCache 0.5.6 never announces the KV of a longer prompt
	// (measured). 0 means no bound.
	MaxPromptTokens int
	// ChunkTokens is chunk_size of the engines' LMCache, or a multiple of it.
	ChunkTokens int
}

// Traits says that legs carry token ids.
func (*Connector) Traits() upstream.Traits { return upstream.Traits{IDs: true} }

// Plan has prefill compute first, waits until the KV has arrived at decode, and has decode continue after the first token. A turn that can't
// run so goes to decode alone.
func (c *Connector) Plan(_ context.Context, t upstream.Transfer) (upstream.Plan, error) {
	a := &attempt{Transfer: t, sent: t.PromptIDs}
	to, why := c.admit(a)
	if why != "" {
		return upstream.Plan{Alone: why}, nil
	}
	id := c.NewID()
	a.salt, a.params = rawjson.Quote(c.NewID()), tagged(id)
	notices := len(to.InitPorts)
	if c.Notifications > 0 {
		notices = c.Notifications
	}
	arrival := c.Expect(id, notices)
	return upstream.Plan{
		Prefill:  a.prefillLeg(to.params(id)),
		Handover: a.handOver,
		Lost:     a.rescue,
		Ready: func(ctx context.Context) error {
			err := arrival.Ready(ctx)
			if errors.Is(err, upstream.ErrNotReady) {
				return fmt.Errorf("%w, and no prefill worker has said so: prompts longer than prefill's max_num_batched_tokens are never announced"+
					" (lmcache.max_prompt_tokens), nor is anything for a decode instance that was restarted; check pd_proxy_host and pd_proxy_port of"+
					" prefill's LMCache", err)
			}
			return err
		},
		Close: arrival.Close,
	}, nil
}

// admit returns the receiver of an attempt's KV, or why decode serves the turn alone, and decides which tokens prefill computes.
func (c *Connector) admit(a *attempt) (to Receiver, why string) {
	for _, name := range []string{body.WhyTruncate, body.WhyPromptLogprobs} {
		// With truncation each leg would cut its prompt differently. Logprobs of the prompt need decode to compute all of it.
		if !rawjson.IsNull(a.Request.Member(name)) {
			return to, name
		}
	}
	if a.Request.API == body.Text && !rawjson.IsNull(a.Request.Member("suffix")) {
		return to, whyRequest // the answer does not follow the ids, but stands between prompt and suffix
	}
	to, ok := c.Receivers[a.Decode.Authority()]
	if !ok {
		return to, whyReceiver
	}
	if a.budget, why = budgetOf(&a.Transfer); why != "" {
		return to, why
	}
	if a.begins = beginsAtDecode(a.Request); a.begins {
		// Decode looks for all ids of its prompt except the last, and takes only whole chunks. So prefill sends only these.
		a.sent = a.sent[:max(0, len(a.sent)-1)/c.ChunkTokens*c.ChunkTokens]
	}
	switch n := len(a.sent); {
	case n == 0:
		return to, whyShort
	case c.MaxPromptTokens > 0 && n > c.MaxPromptTokens:
		return to, whyLong
	}
	return to, ""
}

// Receiver is the address at which a decode instance's LMCache takes KV: pd_peer_host, pd_peer_init_port, pd_peer_alloc_port and
// pd_peer_query_port of its configuration. Prefill's worker of tensor-parallel rank r uses the r-th port of each list. A missing member or
// port raises KeyError or IndexError in the engine (vllm_v1_adapter.py, update_state_after_alloc).
type Receiver struct {
	Host       string `json:"receiver_host"`
	InitPorts  []int  `json:"receiver_init_port"`
	AllocPorts []int  `json:"receiver_alloc_port"`
	QueryPorts []int  `json:"receiver_query_port,omitempty"` // with pd_bidirectional only, else nil
}

// params returns the kv_transfer_params of a prefill leg whose KV goes to the receiver. They never have ret_first_tok, by which LMCache
// names the first token's id in the answer's params: if such a request is aborted before its first token, the engine ends (an IndexError in
// request_finished, vllm_v1_adapter.py; measured on 0.5.6, sync and async: without it six such requests do no harm). Clients that leave and
// time limits abort requests at any time. return_token_ids gives the same id.
func (r Receiver) params(id string) []byte {
	type spec struct {
		ID string `json:"req_id"`
		Receiver
	}
	params, _ := json.Marshal(struct { // of texts and numbers
		Spec spec   `json:"disagg_spec"`
		Tag  string `json:"lmcache.tag.attempt"`
	}{spec{id, r}, id})
	return params
}

// tagged returns the kv_transfer_params with which a leg finds the chunks of an attempt. The tag becomes part of the chunks' keys
// (CacheEngineKey.tags in utils.py; measured on LMCache 0.5.6: with it decode loads 600 of 601 ids, with another tag or none it loads no id;
// older versions ignore it). Only the attempt's legs have the tag, so no other request finds its chunks: LMCache registers chunks before
// their bytes have come, and if the prefill engine ends meanwhile, such chunks stay for ever. It also keeps tenants apart, because LMCache
// ignores cache_salt.
func tagged(id string) []byte { return fmt.Appendf(nil, `{"lmcache.tag.attempt":%q}`, id) }

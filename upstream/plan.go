package upstream

import (
	"carryover/upstream/body"
	"context"
)

// Order says when the decode leg of an attempt begins.
type Order int

// The orders.
const (
	// PrefillFirst: when prefill has answered. Decode then reads what prefill holds (NIXL in pull mode, Mooncake's
	// older form, shared storage).
	PrefillFirst Order = iota + 1
	// Together: at the same time as the prefill leg. Decode waits for the KV by itself, for minutes, and
	// only cancelling the leg frees it (Mooncake).
	Together
	// AfterReady: when prefill has answered and Plan.Ready has seen the KV arrive at decode (LMCache).
	AfterReady
	// DecodeAlone: there is no prefill leg, because the connector can't move the request. Only Why of the plan is
	// used.
	DecodeAlone
)

// Traits are the properties of a connector that hold for all turns.
type Traits struct {
	// Reuses says that prefill can read what decode holds at the end of a turn, so that tickets are worth making.
	// Plans that send both legs together get no tickets, because only prefill's answer shows what became of one.
	Reuses bool
	// IDs says that legs carry token ids, so the prefill instance tokenises each prompt before the plan is made.
	IDs bool
	// HandsBack says that prefill can read a ticket into its prefix cache by a leg of our own, so that decode is free
	// before the next turn comes. It is set only where that was measured, because other requests read what such a leg
	// writes.
	HandsBack bool
	// Agents says that the connector moves turns of the Messages and Responses APIs. Otherwise decode serves them
	// alone.
	Agents bool
	// Introduce asks an engine for the facts that a plan needs; nil if a plan needs none.
	Introduce Introduce
}

// Introduce asks an engine, once per incarnation, for the facts that its connector needs, such as the engine id from
// Mooncake's bootstrap server. Facts from the configuration (addresses, ranks) need no question. An engine whose
// Introduce fails gets no leg.
type Introduce func(ctx context.Context, instance *Instance, fetch Fetch) (known any, err error)

// Fetch gets a path of an engine's side server, whose base URL is scheme and authority. The body has 1 MiB at most.
type Fetch func(ctx context.Context, baseURL, path string) (status int, body []byte, err error)

// Transfer is what a connector knows of an attempt before its first leg.
type Transfer struct {
	Request         *body.Request // read only
	AsText          bool          // prefill's leg is a text completion of known ids, whatever the request's API
	RequestID       string        // X-Request-Id of both legs, unless the plan has others
	Prefill, Decode *Instance
	Offer           TicketOffer // what prefill is to do with a ticket; the zero value is none
	PromptIDs       []uint32    // ids of the prompt, for connectors whose Traits.IDs is set
	ContextLength   int         // how many tokens prompt and answer may have together, 0 if that is not known

	// What Traits.Introduce has returned for the two engines.
	OfPrefill, OfDecode any
}

// PrefillAPI returns the API of prefill's leg.
func (t *Transfer) PrefillAPI() body.API {
	if t.AsText {
		return body.Text
	}
	return t.Request.API()
}

// Plan is how a connector runs one attempt. It consists of values and functions of values: a plan sends nothing, reads
// no clock and never sees an http.ResponseWriter.
type Plan struct {
	Order   Order
	Why     string // why decode serves alone, from a small set of words; "" if the connector can't move the request
	Prefill LegPlan
	// Handover turns prefill's answer into what decode gets; it is called once. With Together it is called with the
	// zero value, before prefill has answered. If it returns nil, decode computes the prompt itself. An error says why
	// the answer makes no hand-over; decode then gets nothing of it.
	Handover func(answer PrefillAnswer) (*Handover, error)
	// Ready returns when the KV has arrived at decode; with AfterReady only. ctx ends with the hand-over budget. An
	// error fails the decode leg, and a *LegError is that leg's error as it is. A connector whose decode can do
	// without the KV returns nil when ctx ends.
	Ready func(ctx context.Context) error
	// Arrived waits like Ready for KV that no leg waits for any more; with AfterReady only, after Ready has returned.
	// It returns nil when the KV has arrived. An error before the end of ctx means that it will not arrive.
	Arrived func(ctx context.Context) error
	// Late is a decode leg of one token that the client does not see; with AfterReady only. It takes the KV that
	// arrives, or is left over, when the client's own leg does not read it: otherwise that KV would stay. It has its
	// own request id.
	Late func() LegPlan
	// Check says, with Together only, why decode would wait in vain although prefill has answered; the decode leg then
	// ends. nil checks nothing.
	Check func(answer PrefillAnswer) error
	// Close returns what the plan has reserved. It is called once, after all other functions of the plan. nil has
	// nothing to return.
	Close func()
}

// LegPlan is one leg as a connector wants it. Its body is the client's with the changes that every prefill or decode
// leg has (one token, the proven ids, the salt), and then Members.
type LegPlan struct {
	API       body.API // whose endpoint the leg goes to
	RequestID string   // "" uses the attempt's
	Rank      string   // data-parallel rank for X-data-parallel-rank; "" uses the instance's
	Members   []body.Member
}

// Handover is what prefill hands over to decode.
type Handover struct {
	// Cached is how many prompt tokens prefill took from its own and remote caches, -1 if that is not known.
	Cached int
	// EngineID is the engine that holds the KV, "" if that is not known. vLLM draws a new one at each start, unless
	// one is configured, and one for each data-parallel rank.
	EngineID string
	// Bound says that only the decode instance of the Transfer can use the KV, so that no other one may get the leg.
	Bound bool
	// Leg returns the decode leg. ids is the JSON list of the ids that decode has to compute; nil lets it render the
	// prompt.
	Leg func(ids []byte) LegPlan
	// Take returns a decode leg of one token that the client does not see, by which decode takes KV that would
	// otherwise stay where it arrived. It runs before a Leg that leaves some of the KV, and after a Whole, under its
	// own request id. nil where nothing stays.
	Take func(ids []byte) LegPlan
	// Head is what a streaming client gets before decode is asked: complete events, nil for none. Other clients do not
	// see it.
	Head []byte
	// Whole is the complete answer, as events or a JSON body as the client asked; decode is then not asked for more.
	Whole []byte
	// Rewrite turns decode's answer into the client's; nil leaves it as it is.
	Rewrite Rewriter
}

// Rewriter turns decode's answer into one for the client. It belongs to one answer.
type Rewriter interface {
	// Event returns what the client sees in place of an event with this data, nil for nothing; it is one line. data is
	// what the client would have seen, without kv_transfer_params, and is valid during the call only.
	Event(data []byte) []byte
	// Body returns what the client sees in place of a whole answer.
	Body(body []byte) ([]byte, error)
}

// ReleaseLeg is a prefill leg of our own that makes a decode instance free blocks. On a release nothing is read; on a
// hand-back prefill reads all blocks.
type ReleaseLeg struct {
	API   body.API
	Body  []byte
	Whole bool // the answer comes in one piece, for Client.Prefill; else it is a stream, for Client.HandBack
}

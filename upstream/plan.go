package upstream

import "context"

// Order says when the decode leg of an attempt begins.
type Order int

// The orders.
const (
	// PrefillFirst: when prefill has answered. Decode reads what prefill holds (NIXL in pull mode, Mooncake's older
	// form, MoRI-IO in READ mode, storage that both share).
	PrefillFirst Order = iota + 1
	// Together: at once with the prefill leg. Decode waits for the KV by itself, and of an engine that waits for
	// minutes only a cancelled leg is rid (Mooncake, MoRI-IO in WRITE mode, P2P NCCL).
	Together
	// AfterReady: when prefill has answered and Plan.Ready has seen the KV arrive at decode (LMCache).
	AfterReady
	// DecodeAlone: there is no prefill leg, for requests that the connector can't move; of the plan only Why is used.
	DecodeAlone
)

// Traits are what holds for all turns of a connector.
type Traits struct {
	// Reuses says that prefill can read what decode holds at the end of a turn, so that tickets are worth making. Plans
	// that send both legs together get none: what became of a ticket is seen in prefill's answer.
	Reuses bool
	// IDs says that legs carry token ids, so that each prompt is tokenised by its prefill instance before the plan.
	IDs bool
	// NeedsPrefill says that decode engines serve nothing without a hand-over, because they count on KV that others bring
	// for each request: without, they wait for ever, end, or answer from memory that was never written (P2P-NCCL and MoRI-IO,
	// get_num_new_matched_tokens). Where there is no hand-over the turn fails then, whatever else is configured.
	NeedsPrefill bool
	// HandsBack says that prefill can read a ticket into its prefix cache by a leg of our own, so that decode is free before any turn
	// comes. It is said only where it was measured: what such a leg writes is read by others.
	HandsBack bool
	// Agents says that the connector moves turns of the Messages and Responses APIs. Where it does not, decode serves them alone, and
	// none are served where NeedsPrefill says that it can't.
	Agents bool
	// Introduce asks an engine for what a plan has to know of it, nil if that is nothing.
	Introduce Introduce
}

// Introduce asks an engine, once per start of it, for what its connector has to know, as the engine id behind Mooncake's
// bootstrap server. What the configuration tells (addresses, ranks) needs no question. An engine of which it fails gets no leg.
type Introduce func(ctx context.Context, instance *Instance, fetch Fetch) (known any, err error)

// Fetch gets a path of a server beside an engine, whose base URL is scheme and authority. The body has 1 MiB at most.
type Fetch func(ctx context.Context, baseURL, path string) (status int, body []byte, err error)

// Transfer is what a connector is told of an attempt before its first leg.
type Transfer struct {
	Request         *Request // read only
	AsText          bool     // prefill's leg is a text completion of ids that were told before, whatever API the request is of
	RequestID       string   // X-Request-Id of both legs, unless the plan has others
	Prefill, Decode *Instance
	Offer           TicketOffer // what prefill is to make of a ticket; the zero value is none
	PromptIDs       []uint32    // of the prompt, for connectors whose Traits ask for them
	ContextLength   int         // how many tokens prompt and answer may have together, as the tokeniser tells; 0 if it does not

	// What Traits.Introduce has found of either.
	OfPrefill, OfDecode any
}

// PrefillAPI is the API of prefill's leg.
func (t *Transfer) PrefillAPI() API {
	if t.AsText {
		return Text
	}
	return t.Request.API()
}

// Plan is how one connector runs one attempt. It holds values and functions of values: a plan
// sends nothing, reads no clock and never sees an http.ResponseWriter.
type Plan struct {
	Order   Order
	Why     string // why decode serves alone, one of a small set of words; "" says that the connector can't move the request
	Prefill LegPlan
	// Handover reads prefill's answer, once. With Together it is called before prefill has answered, with the zero
	// value. Where it returns nil, decode prefills by itself. The error says why an answer is none; decode gets nothing
	// of it then.
	Handover func(answer PrefillAnswer) (*Handover, error)
	// Ready returns when the KV has arrived, with AfterReady only. The runner ends ctx with the hand-over budget. An error
	// is a failure of the decode leg, as it is if it is a *LegError; a connector whose decode can do without the KV returns
	// nil when ctx ends.
	Ready func(ctx context.Context) error
	// Arrived returns when the KV has arrived, with AfterReady only: of KV for which nobody waits any more, whatever Ready has said. The error
	// says that it has not, and will not if ctx has not ended. It is called when Ready has returned.
	Arrived func(ctx context.Context) error
	// Late is a decode leg of one token, not shown to the client, that takes all KV which arrives, or is left, when the client's own leg does
	// not read it: the KV would else stay. It has a request id of its own. With AfterReady only.
	Late func() LegPlan
	// Check says why decode waits in vain although prefill has answered, with Together only; the decode leg ends then. nil checks
	// nothing.
	Check func(answer PrefillAnswer) error
	// Close gives back what the plan has reserved. It is called once, when no function of the plan is called any more; nil has
	// nothing to give back.
	Close func()
}

// LegPlan is one leg as a connector wants it. The body is the client's, with what every
// prefill or decode leg has (one token, the ids that were proven, the salt) and then Members.
type LegPlan struct {
	API       API    // whose endpoint the leg goes to
	RequestID string // "" keeps the attempt's
	Rank      string // data-parallel rank, the value of X-data-parallel-rank; "" keeps the instance's
	Members   []Member
}

// Member is a top-level member of a body.
type Member struct {
	Name  string
	Value []byte // raw JSON; nil takes the member out
}

// Handover is what prefill hands to decode.
type Handover struct {
	// Cached is how many prompt tokens prefill took from caches, its own and remote ones, -1 if it does not tell.
	Cached int
	// EngineID names the engine that holds the KV, "" where prefill does not tell. vLLM draws another one at each start, unless it is
	// configured, and for each data-parallel rank.
	EngineID string
	// Bound says that the KV is for the decode instance of the Transfer alone, so that no other may get the leg.
	Bound bool
	// Leg is the decode leg. ids is the JSON list of the ids that decode has to compute, nil to let it render.
	Leg func(ids []byte) LegPlan
	// Take is a decode leg of one token, not shown to the client, with which decode takes KV that would else stay where it has arrived: it
	// goes before a Leg that leaves some of it, and behind a Whole, with a request id of its own. nil where nothing stays.
	Take func(ids []byte) LegPlan
	// Head is what a client that streams gets before decode is asked: complete events, nil for none. Others don't see it.
	Head []byte
	// Whole is the whole answer, events or a JSON body as the client asked; decode is not asked for more then.
	Whole []byte
	// Rewrite makes what the client gets out of what decode sends; nil leaves it as it is.
	Rewrite Rewriter
}

// Rewriter turns decode's answer into one for the client. It belongs to one answer.
type Rewriter interface {
	// Event returns what the client sees instead of an event with this data, nil for nothing. It gets what the client would
	// have seen, without kv_transfer_params; data is valid during the call. What it returns is one line.
	Event(data []byte) []byte
	// Body returns what the client sees instead of a whole answer.
	Body(body []byte) ([]byte, error)
}

// ReleaseLeg is a prefill leg of our own that makes a decode instance free blocks. Of a release nothing is read; of a hand-back prefill
// reads them all.
type ReleaseLeg struct {
	API   API
	Body  []byte
	Whole bool // it is answered in one piece, for Client.Prefill; else it is for Client.HandBack
}

package upstream

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"strings"
	"unicode/utf8"

	"carryover/upstream/body"
)

// Traits are a connector's properties that hold for all turns.
type Traits struct {
	// Reuses says that prefill can read the KV that decode holds at the end of a turn. Plans that send both legs together get no tickets,
	// because only prefill's answer shows whether a ticket was used.
	Reuses bool
	// IDs says that legs carry token ids, so the prefill instance tokenises each prompt before the plan is made.
	IDs bool
	// HandsBack says that a leg of our own can read a ticket into prefill's prefix cache, which frees decode before the next turn. It is set
	// only where that was measured: other requests read what such a leg writes.
	HandsBack bool
	// Agents says that the connector moves turns of the Messages and Responses APIs. Otherwise decode serves them alone.
	Agents bool
}

// Transfer is what a connector knows of an attempt before its first leg.
type Transfer struct {
	Request         *body.Request // read only
	AsText          bool          // prefill's leg is a text completion of known ids, whatever the request's API
	RequestID       string        // X-Request-Id of both legs
	Prefill, Decode *Instance
	Offer           TicketOffer // the zero value is none
	PromptIDs       []uint32    // ids of the prompt, for connectors whose Traits.IDs is set
	ContextLength   int         // most tokens of prompt and answer together, 0 if not known
}

// PrefillAPI returns the API of prefill's leg.
func (t *Transfer) PrefillAPI() body.API {
	if t.AsText {
		return body.Text
	}
	return t.Request.API
}

// TicketOffer says what a prefill leg does with a ticket. The zero value is a leg without one.
type TicketOffer struct {
	// Ticket is decode's kv_transfer_params of an earlier turn, nil for none.
	Ticket []byte
	// Reading is TicketParams.Reading of the ticket, nil if not known.
	Reading any
	// Holder is the decode instance that has the ticket's blocks.
	Holder *Instance
	// Tokens is how many of the ticket's tokens may be read: all, or whole blocks of BlockSize tokens.
	Tokens, BlockSize int
	// Release reads nothing and makes Holder free the blocks.
	Release bool
	// PromptIDs is the list of ids that a chat leg computes; with nil it renders its prompt.
	PromptIDs []byte
}

// Plan is how a connector runs one attempt. Its functions only compute, except Ready. Decode is planned when prefill has answered, unless
// Together is set.
type Plan struct {
	// Alone says why decode serves the turn alone, from a small set of words; the rest of the plan is not used then. "" means that prefill
	// serves it too.
	Alone   string
	Prefill LegPlan
	// Together is sent to decode at the same time as prefill's leg. Decode waits for the KV by itself, for minutes, and only the end of its leg
	// ends that (Mooncake). Such a plan gets no ticket, because only prefill's answer shows whether a ticket was used.
	Together *Handover
	// Handover turns prefill's answer into what decode gets; it is called once. nil means that decode computes the prompt itself. After an error
	// decode gets nothing of the answer, and a leg that was sent together with prefill's ends.
	Handover func(answer PrefillAnswer) (*Handover, error)
	// Lost is Handover.Rescue for a prefill leg that was sent and gave no hand-over: its KV may still arrive at decode. nil if none does.
	Lost func() []body.Member
	// Ready returns when the KV has arrived at decode, or the cause of ctx; an error says that the KV will not arrive. nil if decode waits for
	// the KV by itself.
	Ready func(ctx context.Context) error
	// Close returns what the plan has reserved, see Done; nil if there is nothing to return.
	Close func()
}

// Done returns what the plan has reserved. It is called once, after all functions of the plan.
func (p *Plan) Done() {
	if p.Close != nil {
		p.Close()
	}
}

// LegPlan is one leg as a connector wants it. Its body is the client's with the changes of every prefill or decode leg (one token, the proven
// ids, the salt), and then Members.
type LegPlan struct {
	API     body.API
	Rank    string // data-parallel rank for X-data-parallel-rank; "" uses the instance's
	Members []body.Member
}

// Legs runs legs. Errors are *LegError.
type Legs interface {
	Prefill(ctx context.Context, leg Leg) (PrefillAnswer, error)
	// Decode returns when the headers of the answer have arrived. The leg outlives ctx for as long as limits.Gone says.
	Decode(ctx context.Context, leg Leg, limits Limits) (*Stream, error)
	// HandBack runs a leg made by Connector.HandBack or Connector.Release, up to the first event of its answer.
	HandBack(ctx context.Context, leg Leg) (PrefillAnswer, error)
	// Reach returns an error if the instance accepts no connection. It sends nothing.
	Reach(ctx context.Context, instance *Instance) error
	// Fetch sends a GET. It returns the answer's status, 0 if no answer has begun, and its body up to most bytes.
	Fetch(ctx context.Context, instance *Instance, path, authorization string, most int64) (status int, body []byte, err error)
	// Close closes the connections that no leg uses.
	Close()
}

// Connector knows one KV connector of vLLM: the content of its legs, and their order. Its methods only compute. An error means that an object can't be
// used; then nothing of it may be sent.
type Connector interface {
	Traits() Traits
	// Plan says which legs of an attempt run and what they carry. Its error may also be a *LegError: a question to an engine failed.
	Plan(ctx context.Context, transfer Transfer) (Plan, error)
	// ParseTicket reads decode's last kv_transfer_params for the next turn. blockSize is decode's block size in tokens, 0 if unknown. With
	// ErrMisplaced no turn can use the blocks, but ParseTicket still returns them, so that they can be released.
	ParseTicket(final []byte, blockSize int) (TicketParams, error)
	// Release makes the leg that lets a ticket's decode engine free the blocks. The engines must serve model.
	Release(offer TicketOffer, model string) (ReleaseLeg, error)
	// HandBack makes the leg with which prefill reads a whole ticket into its cache, under the offer's token ids (a JSON list) and the cache_salt.
	HandBack(offer TicketOffer, model, salt string) (ReleaseLeg, error)
}

// Handover is what prefill hands over to decode.
type Handover struct {
	// Cached is how many prompt tokens prefill took from its own and remote caches, -1 if not known.
	Cached int
	// EngineID is the engine that holds the KV, "" if not known. vLLM draws a new one at each start, unless one is configured, and one for each
	// data-parallel rank.
	EngineID string
	// Bound says that only the decode instance of the Transfer can use the KV, so no other one may get the leg.
	Bound bool
	// Leg returns the decode leg. ids is the JSON list of the prompt's ids; with nil decode renders the prompt.
	Leg func(ids []byte) LegPlan
	// Left says that Leg reads no KV, so that Rescue has to.
	Left bool
	// Rescue returns the members of a leg of one token by which decode reads KV that no other leg reads. It is a text completion of the prompt's
	// ids, unless the members have a prompt, under a cache_salt of its own. nil if no KV stays behind without it.
	Rescue func() []body.Member
	// Head is complete events that a streaming client gets before decode's first; nil for none. Other clients do not get it.
	Head []byte
	// Rewrite turns decode's answer into the client's; nil leaves it as it is.
	Rewrite Rewriter
}

// Rewriter turns decode's answer into one for the client. It belongs to one answer.
type Rewriter interface {
	// Event returns one line that the client sees in place of the event's data, nil for nothing. data is what the client would have seen,
	// without kv_transfer_params; it is valid during the call only.
	Event(data []byte) []byte
	// Body returns what the client sees in place of a whole answer.
	Body(body []byte) ([]byte, error)
}

// Arrival is the KV of one attempt on its way to decode.
type Arrival interface {
	// Ready returns nil when the KV has arrived, the cause of ctx when ctx ends, or the reason why the KV will not arrive.
	Ready(ctx context.Context) error
	// Close ends the wait; one call suffices.
	Close()
}

// TicketParams are decode's final kv_transfer_params as a connector reads them.
type TicketParams struct {
	// Params are the params without members for this turn only. They may share memory with the answer, and must not be changed.
	Params []byte
	// Reading is what the connector has parsed of Params, so that a TicketOffer in this process need not parse them again. It shares no memory
	// with them.
	Reading any
	// Tokens is how many tokens the blocks hold, in Groups block groups.
	Tokens, Groups int
	// Expires says that the params tell prefill when the blocks are gone.
	Expires bool
	// EngineID is the engine that owns the blocks, new at each start; RequestID is that engine's name for them.
	EngineID, RequestID string
	// Generation is how often the owner had registered its KV memory, 0 if it does not tell. Only blocks of its latest generation exist.
	Generation int
	// OutputIDs are the tokens that decode sampled, nil without the plug-in.
	OutputIDs []uint32
}

// ErrMisplaced says that the number of blocks in decode's params does not fit their tokens: prefill would read them into wrong positions.
var ErrMisplaced = errors.New("blocks do not fit their tokens")

// ReleaseLeg is a prefill leg of our own that makes a decode instance free blocks. A release reads nothing; on a hand-back prefill reads all
// blocks.
type ReleaseLeg struct {
	API   body.API
	Body  []byte
	Whole bool // the answer comes in one piece, for Client.Prefill; else it is a stream, for Client.HandBack
}

// maxSalt is the most characters of a cache_salt (validate_cache_salt in generate/base/protocol.py of vLLM 0.32 and 0.33).
const maxSalt = 128

// Salted puts a text of our own, of at most 80 characters, in front of a request's cache_salt. If that is too long for engines, the SHA-256 of
// the salt replaces it: equal salts stay equal on all replicas, and only who knows a salt can tell its hash. A salt that engines refuse stays,
// so that they refuse the leg too.
func Salted(prefix, salt string) string {
	if n := utf8.RuneCountInString(salt); n <= maxSalt && utf8.RuneCountInString(prefix)+n > maxSalt && !strings.ContainsAny(salt, "@/\\\x00") {
		sum := sha256.Sum256([]byte(salt))
		salt = base64.RawURLEncoding.EncodeToString(sum[:])
	}
	return prefix + salt
}

// NewID returns a random id for a leg, which nobody can guess.
func NewID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails since Go 1.24
	return hex.EncodeToString(b[:])
}

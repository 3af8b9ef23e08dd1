package request

import (
	"net/http"
	"time"

	"carryover/convcache"
	"carryover/upstream/body"
)

// Request is what a client asked for. It does not change once it is understood.
type Request struct {
	API           body.API
	Account       string // for whom it counts: a tenant that can't be invented, or a block of addresses
	Model         string
	Stream        bool              // the client asked for a stream
	Length        body.PromptLength // how long the prompt is, as far as that shows without a tokenizer
	Conversation  Conversation
	TenantSalt    string // the tenant's cache_salt on all legs; "" leaves the client's
	Authorization string // the client's credential, if it is to be forwarded
	Prefiller     string // the prefill instance that is to serve the request, "" for any
}

// MayPrefill reports whether the request allows a prefill instance to serve it: it names the instance, or names none.
func (r *Request) MayPrefill(instance string) bool {
	return r.Prefiller == "" || r.Prefiller == instance
}

// Config says how requests are read. Sizes and durations must be positive.
type Config struct {
	Sources              []string // of conversation ids, in the order in which they are tried
	ByContent            bool     // what its user has written names a conversation without an id
	TenantHeader         string   // names the tenant; "" derives it from the credential. A request that has the header twice is refused
	TenantSalt           bool     // both legs get a cache_salt of the tenant
	ForwardAuthorization bool     // send the client's credential to the engines
	MaxBodyBytes         int64
	ClientBodyTimeout    time.Duration // how long a body may take to arrive
}

// Prefillers adds the prefill instance that a request names to the fleet.
type Prefillers interface {
	// Admit adds the prefill instance at host:port to the fleet and returns its name. The error says why the instance is not permitted.
	Admit(hostPort string) (name string, err error)
}

// Reader reads requests. It is safe for concurrent use.
type Reader struct {
	cfg             Config
	secret          convcache.Secret
	inflight        *Inflight
	prefillers      Prefillers
	responseSources []string // conversation id sources of Responses
	accepted        *Accepted
}

// NewReader returns a reader of requests whose memory is counted by inflight. prefillers is nil where requests name no prefill instance.
func NewReader(cfg Config, secret convcache.Secret, inflight *Inflight, accepted *Accepted, prefillers Prefillers) *Reader {
	return &Reader{cfg: cfg, secret: secret, inflight: inflight, accepted: accepted, prefillers: prefillers, responseSources: responseSources(cfg.Sources)}
}

// Understand parses the body of a request and finds its conversation. It reserves the memory of the parsed form. The body is returned
// apart, because a turn drops it before its answer ends. With an error, the request has what was known until then.
func (i *Reader) Understand(r *http.Request, api body.API, tenant string, raw []byte, share *Reservation) (Request, *body.Request, error) {
	req := Request{API: api, Account: share.Account}
	parsed, err := body.ParseRequest(api, raw)
	if err != nil {
		return req, nil, err
	}
	if req.Conversation, err = i.identify(r, parsed, tenant); err != nil {
		return req, nil, err
	}
	// Engines do not know conversation_id. request_id would let a client choose the id by which engines name its blocks.
	parsed.Remove("conversation_id")
	parsed.Remove("request_id")
	req.Model, req.Stream, req.Length = parsed.Model(), parsed.Stream(), parsed.Prompt().Length()
	if req.Authorization, err = i.Authorization(r.Header); err != nil {
		return req, nil, err
	}
	if i.cfg.TenantSalt {
		clientSalt, _ := parsed.String("cache_salt")
		req.TenantSalt = i.secret.Salt(tenant, clientSalt)
	}
	if n := parsed.IndexBytes(); n > firstStep { // each body has reserved firstStep
		if err := share.Grow(n); err != nil {
			return req, nil, err
		}
	}
	req.Prefiller, err = i.prefiller(r.Header)
	return req, parsed, err
}

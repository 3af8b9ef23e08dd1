// Package request reads what a client asks for: HTTP in, a [Request] out. It needs neither an engine nor the store. The steps take values and
// return their results, because turns and counts of tokens need different ones:
//
//  1. who asks: the tenant, by the credential or a gateway's header                           tenant.go
//  2. receive the body within limits of size, time, rate and memory, and decode it            receive.go, inflight.go
//  3. understand it: API, model, conversation, prefill instance, the client's trace context   request.go, conversation.go, trace.go
//
// A Request does not change after that. It does not hold the client's body, so the body can be freed while the answer is on its way. A
// client's fault is an [Error]; its shape on the wire is the server's.
package request

import (
	"fmt"
	"net/http"
	"strings"
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
	Length        body.PromptLength // estimated without a tokenizer
	Conversation  Conversation
	TenantSalt    string // the tenant's cache_salt on all legs; "" leaves the client's
	Authorization string // the client's credential, if it is to be forwarded
	Prefiller     string // the prefill instance for the request, "" for any
}

// MayPrefill reports whether a prefill instance may serve the request: the request names it, or names none.
func (r *Request) MayPrefill(instance string) bool {
	return r.Prefiller == "" || r.Prefiller == instance
}

// Config says how requests are read. Sizes and durations must be positive.
type Config struct {
	Sources              []string // of conversation ids, in the order in which they are tried
	ByContent            bool     // a user's texts name a conversation without an id
	TenantHeader         string   // names the tenant; "" derives it from the credential. A request that has the header twice is refused
	TenantSalt           bool     // both legs get a cache_salt of the tenant
	ForwardAuthorization bool     // send the client's credential to the engines
	MaxBodyBytes         int64
	ClientBodyTimeout    time.Duration // bounds the arrival of a body
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

// NewReader returns a reader of requests whose memory inflight counts. prefillers is nil where requests name no prefill instance.
func NewReader(cfg Config, secret convcache.Secret, inflight *Inflight, accepted *Accepted, prefillers Prefillers) *Reader {
	return &Reader{cfg: cfg, secret: secret, inflight: inflight, accepted: accepted, prefillers: prefillers, responseSources: responseSources(cfg.Sources)}
}

// Understand parses the body of a request and finds its conversation. It reserves the memory of the parsed form. The body is returned apart,
// because a turn drops it before its answer ends. With an error, the request has the values known until then.
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
	req.Model, req.Stream, req.Length = parsed.Model, parsed.Stream, parsed.Prompt().Length()
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

// PrefillerHeader names the prefill instance of a request as host:port. llm-d's endpoint picker sets it, and removes it if decode is to serve
// alone (llm-d-router, pkg/common/routing). The header is read here and never forwarded.
const PrefillerHeader = "X-Prefiller-Host-Port"

// prefiller takes the first of several names, as llm-d's sidecar does (pkg/sidecar/proxy/chat_completions.go).
func (i *Reader) prefiller(header http.Header) (name string, err error) {
	if i.prefillers == nil {
		return "", nil
	}
	first, _, _ := strings.Cut(header.Get(PrefillerHeader), ",")
	if first = strings.TrimSpace(first); first == "" {
		return "", nil
	}
	if name, err = i.prefillers.Admit(first); err != nil {
		return "", &Error{
			Status: http.StatusForbidden, Code: "prefiller_not_allowed", Message: "The prefill instance that the request names is not permitted.", Cause: err,
		}
	}
	return name, nil
}

// ID returns the client's X-Request-Id if its form is safe in the answer and the log, else "". Legs to engines always have an id of our own.
func ID(header http.Header) string {
	id := header.Get("X-Request-Id")
	if len(id) > 128 {
		return ""
	}
	for i := range len(id) {
		switch c := id[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '.', c == '_', c == '-':
		default:
			return ""
		}
	}
	return id
}

// Error is a request that is refused for its content, or for the memory that it would take.
type Error struct {
	Status  int    // of the answer
	Param   string // the member of the body at fault, "" for none
	Code    string // of the API's error
	Message string // for the client
	Cause   error  // for the log; the client does not learn it. nil if Message says everything
}

func (e *Error) Error() string {
	if e.Cause != nil {
		return e.Message + " " + e.Cause.Error()
	}
	return e.Message
}

func badRequest(param, code, message string) *Error {
	return &Error{Status: http.StatusBadRequest, Param: param, Code: code, Message: message}
}

func refused(status int, code, message string) *Error {
	return &Error{Status: status, Code: code, Message: message}
}

func overloaded(message string) *Error {
	return &Error{Status: http.StatusServiceUnavailable, Code: "overloaded", Message: message}
}

// TooLarge is the error for a body of more bytes than the limit.
func TooLarge(limit int64) *Error {
	return refused(http.StatusRequestEntityTooLarge, "request_too_large", fmt.Sprintf("The request body is larger than %d bytes.", limit))
}

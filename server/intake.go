package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"strings"
	"time"

	"carryover/convcache"
	"carryover/server/outline"
	"carryover/server/proof"
	"carryover/server/record"
	"carryover/upstream/body"
)

// A client must send its body at 1 KiB/s or faster, measured over ten seconds. A slower one would hold memory for nothing.
const (
	slowWindow = 10 * time.Second
	slowBytes  = 10 << 10
)

// intake reads and parses requests. It does the part of a turn that needs neither an engine nor the store.
type intake struct {
	cfg             *Config
	secret          convcache.Secret
	tokens, history proof.Proof
	reuses          bool         // the connector leaves KV that a next turn can use
	arena           *proof.Arena // keeps token ids for hand-backs, nil where nothing is handed back
	prefillers      Prefillers   // nil where requests name no prefill instance
	outlines        outline.Key
	account         *inflight
	responseSources []string                           // conversation id sources of Responses
	awaitSlot       func(context.Context, *turn) error // gets a turn its slot, and may wait for it
}

// request is what a client asked for.
type request struct {
	api           body.API
	req           *body.Request // nil once the answer has begun
	length        body.PromptLength
	prefiller     string // the prefill instance that is to serve the request, "" for any
	authorization string // the client's credential, if it is to be forwarded
	model         string
	stream        bool // the client asked for a stream
}

// maxEarlyBody is the largest body that is read before its turn has a slot. net/http notices that a client has left only after the body
// has been read. A larger body would take more memory during the wait than the early notice is worth; that its client has left is
// noticed when the wait is over.
const maxEarlyBody = 64 << 10

// isEarly reports whether a body is read before its turn has a slot.
func isEarly(r *http.Request) bool { return r.ContentLength >= 0 && r.ContentLength <= maxEarlyBody }

// take reads a request into its turn, and gets the turn a slot.
func (i *intake) take(w http.ResponseWriter, r *http.Request, t *turn) error {
	names := clientNames{i.cfg.LogClients, i.secret}
	client := names.address(r)
	t.record.From(client, "")
	tenant, err := i.tenant(r)
	if err != nil {
		return err
	}
	t.record.From(client, names.tenant(tenant))
	t.share = reservation{account: i.account, client: clientOf(r, tenant)}
	early := isEarly(r)
	if !early {
		if err := i.awaitSlot(r.Context(), t); err != nil {
			return err
		}
	}
	body, err := i.readBody(w, r, &t.share)
	if err != nil {
		return err
	}
	if early {
		if err := i.awaitSlot(r.Context(), t); err != nil {
			return err
		}
	}
	if err := i.understand(r, t, body, tenant); err != nil {
		return err
	}
	if n := t.req.IndexBytes(); n > firstStep { // each turn has reserved firstStep
		if err := t.share.grow(n); err != nil {
			return err
		}
	}
	if err := i.namePrefiller(r, t); err != nil {
		return err
	}
	i.admit(t)
	return nil
}

// understand parses a body and finds its conversation.
func (i *intake) understand(r *http.Request, t *turn, body []byte, tenant string) (err error) {
	t.req, err = i.parse(t.api, body)
	if err != nil {
		return err
	}
	if t.conversation, err = i.identify(r, t.req, tenant); err != nil {
		return err
	}
	// Engines do not know conversation_id. request_id would let a client choose the id by which engines name its blocks.
	t.req.Remove("conversation_id")
	t.req.Remove("request_id")
	t.model, t.stream, t.length = t.req.Model(), t.req.Stream(), t.req.PromptLength()
	if t.authorization, err = i.cfg.forwarded(r.Header); err != nil {
		return err
	}
	if i.cfg.TenantSalt {
		clientSalt, _ := t.req.String("cache_salt")
		t.salt = i.secret.Salt(t.conversation.tenant, clientSalt)
	}
	return nil
}

// parse scans a body.
func (i *intake) parse(api body.API, raw []byte) (*body.Request, error) {
	if i.cfg.StripClientParams {
		return body.ParseRequestStripped(api, raw)
	}
	return body.ParseRequest(api, raw)
}

// admit begins the proof of a request, or says why the request takes no part in reuse.
func (i *intake) admit(t *turn) {
	way, byHistory := i.tokens, i.cfg.proofFor(t.model) == ProofHistory
	if byHistory {
		way = i.history
	}
	t.way = way.Name()
	reuse, conversation := t.record.Reuse(), ""
	reuse.Off, reuse.Proof = t.conversation.off, t.way
	t.record.Reuses(reuse)
	if t.conversation.known {
		conversation = t.conversation.key.Short()
	}
	t.record.Asks(t.model, conversation, t.conversation.source)
	if why, ok := t.req.Disaggregable(); !ok {
		t.ineligible = why
		return
	}
	if why, ok := t.req.Reusable(); !ok {
		t.ineligible = why
		return
	}
	switch {
	case byHistory && t.api.Rendered():
		t.ineligible = record.WhyAPI
	case !t.conversation.known && !i.outside(t):
	case !i.reuses:
		t.ineligible = record.WhyConnector
	default:
		t.proof, t.ineligible = way.Admit(t.req)
	}
	if t.proof == nil {
		return
	}
	if t.conversation.known {
		t.outline = i.outlines.Of(t.req)
	}
	if !t.conversation.final {
		t.arena = i.arena
		t.clientSalt, _ = t.req.String("cache_salt")
	}
}

// outside reports whether the answer of a turn without a conversation is handed back. The history proof can't serve such a turn, because
// only token ids prove what decode holds for it.
func (i *intake) outside(t *turn) bool {
	return i.arena != nil && !t.conversation.off && i.cfg.proofFor(t.model) != ProofHistory
}

// dropBody frees the request and its ids, and gives back the turn's reserved bytes except those that the end of the stream needs. It is
// called when decode answers and no attempt can follow, so that a stream of minutes does not hold its prompt.
func (t *turn) dropBody() {
	t.req, t.chain = nil, nil
	if t.proof != nil {
		t.proof.Drop()
	}
	t.share.shrinkTo(t.rest())
}

// rest is the memory in bytes that the end of the stream needs of the prompt: hashes of its tokens, its outline, and hashes of
// the branches that the look-up saw.
func (t *turn) rest() int64 {
	n := t.ids.Bytes() + t.outline.Bytes()
	for i := range t.branches {
		n += 8 * int64(len(t.branches[i].Chain.Blocks))
	}
	return n
}

// clientOf names the client that bytes in flight are counted for: the tenant, or else the address of the connection. A gateway that names
// no tenants is one client.
func clientOf(r *http.Request, tenant string) string {
	if tenant != "" {
		return tenant
	}
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	return "address:" + host
}

// readBody checks the framing, and reads the body within its limits of size, time and rate.
func (i *intake) readBody(w http.ResponseWriter, r *http.Request, share *reservation) ([]byte, error) {
	if err := i.checkFraming(r); err != nil {
		return nil, err
	}
	return i.readPaced(w, r, share)
}

// checkFraming refuses a body whose headers show that it can't be read: another media type, an encoding, or too many bytes.
func (i *intake) checkFraming(r *http.Request) error {
	if !isJSON(r.Header.Get("Content-Type")) {
		return refused(http.StatusUnsupportedMediaType, "unsupported_media_type", "Content-Type must be application/json.")
	}
	if coding := r.Header.Get("Content-Encoding"); coding != "" && !strings.EqualFold(coding, "identity") {
		return refused(http.StatusUnsupportedMediaType, "unsupported_encoding", "Content-Encoding must be identity.")
	}
	if r.ContentLength > i.cfg.MaxBodyBytes {
		return tooLarge(i.cfg.MaxBodyBytes)
	}
	return nil
}

// isJSON reports whether a Content-Type names JSON. Nearly all clients use one of two spellings, which are compared without parsing.
func isJSON(contentType string) bool {
	if contentType == "application/json" || contentType == "application/json; charset=utf-8" {
		return true
	}
	media, _, err := mime.ParseMediaType(contentType)
	return err == nil && media == "application/json"
}

func (i *intake) readPaced(w http.ResponseWriter, r *http.Request, share *reservation) ([]byte, error) {
	limit := i.cfg.MaxBodyBytes
	body := bodyBuffer{size: r.ContentLength, share: share}
	if r.ContentLength < 0 {
		body.size = limit + 1
	}
	control := http.NewResponseController(w)
	deadline := time.Now().Add(i.cfg.ClientBodyTimeout)
	for {
		window := time.Now().Add(slowWindow)
		if window.After(deadline) {
			window = deadline
		}
		if err := control.SetReadDeadline(window); err != nil {
			return nil, fmt.Errorf("read body: %w", err)
		}
		err := body.readFrom(r.Body, slowBytes)
		switch {
		case int64(len(body.bytes)) > limit:
			return nil, tooLarge(limit)
		case errors.Is(err, io.EOF):
			return body.bytes, control.SetReadDeadline(time.Time{})
		case err != nil:
			return nil, readFailed(r.Context(), err)
		}
	}
}

func readFailed(ctx context.Context, err error) error {
	var timeout interface{ Timeout() bool }
	var api *apiError
	switch {
	case errors.As(err, &api):
		return api
	case errors.As(err, &timeout) && timeout.Timeout():
		return refused(http.StatusRequestTimeout, "request_timeout", "The request body arrived too slowly.")
	case ctx.Err() != nil, errors.Is(err, io.ErrUnexpectedEOF):
		return record.ErrClientGone
	}
	return badRequest("", "bad_request", "The request body can't be read.")
}

func tooLarge(limit int64) *apiError {
	return refused(http.StatusRequestEntityTooLarge, "request_too_large", fmt.Sprintf("The request body is larger than %d bytes.", limit))
}

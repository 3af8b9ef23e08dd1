package facts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"carryover/sse/rawjson"
	"carryover/upstream"
	"carryover/upstream/body"
)

// ErrNoRender says that a request's ids need a render endpoint and there is none ([Prompts.Read]).
var ErrNoRender = errors.New("no render endpoint")

type renderer struct {
	at *upstream.Instance // nil for the engine

	mu    sync.Mutex // guards the rest
	found [body.APIs]Finding
	until [body.APIs]time.Time // a No counts until then
}

// renderRest is how long a No of the fleet's renderer counts, because another process may replace it at any time. What an engine serves
// changes only with a restart.
const renderRest = 30 * time.Second

func (r *renderer) renders(api body.API, now time.Time) Finding {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.at != nil && r.found[api] == No && !now.Before(r.until[api]) {
		return Unknown
	}
	return r.found[api]
}

func (p *Prompts) renderer() *renderer {
	if r := p.shared.fleetRenderer; r != nil {
		return r
	}
	return &p.own
}

func (p *Prompts) rendered(ctx context.Context, req *body.Request, authorization string) (Prompt, error) {
	if p.renderer().renders(req.API, p.shared.Now()) == No {
		return Prompt{}, ErrNoRender
	}
	prompt, err := p.askRender(ctx, p.renderer(), req, authorization, p.shared.buffer())
	if err == nil && disablesThinking(req) {
		err = p.agree(ctx, req, authorization, len(prompt.IDs))
	}
	if err != nil {
		prompt.Done()
		return Prompt{}, err
	}
	prompt.ContextLength = ContextLength(p.engine.Models(), req.Model)
	return prompt, nil
}

// askRender calls a render endpoint. Errors are ErrNoRender if it does not exist, and *upstream.LegError.
func (p *Prompts) askRender(ctx context.Context, r *renderer, req *body.Request, authorization string, buffer *promptBuffer) (prompt Prompt, err error) {
	at, api, found := cmp.Or(r.at, p.instance()), req.API, Unknown
	status, answer, err := p.shared.Client.Post(ctx, at, api.Path()+"/render", req.RenderBody(), authorization, buffer.text)
	buffer.text = answer
	switch {
	case err != nil:
		err = askFailed(at, "render", status, nil, err)
	case status == http.StatusOK:
		if prompt, err = buffer.read("token_ids"); err != nil {
			err = askFailed(at, "render", status, nil, err)
		} else {
			found = Yes
		}
	case unserved(status, answer) || switchedOff(status, answer, authorization):
		found, err = No, ErrNoRender
	default:
		err = askFailed(at, "render", status, answer, nil)
	}
	if found != Unknown && (p.known || r.at != nil) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.at != nil {
			r.found[api] = Unknown
		}
		r.found[api], r.until[api] = max(r.found[api], found), p.shared.Now().Add(renderRest) // for an engine, No wins over Yes if two answers disagree
	}
	return prompt, err
}

// unserved reports whether the endpoint does not exist. An unknown model is a 404, too (_check_model), but its error
// names the model: by the member at fault or, in the Messages API, by the error's type.
func unserved(status int, answer []byte) bool {
	if status != http.StatusNotFound {
		return status == http.StatusMethodNotAllowed
	}
	fault := upstream.ReadFault(answer)
	return fault.Param == "" && fault.Type != "NotFoundError"
}

// switchedOff reports whether vLLM runs without --enable-scale-out. Another 403 may be a gateway's verdict on the
// client's credential, which says nothing of other clients.
func switchedOff(status int, answer []byte, authorization string) bool {
	return status == http.StatusForbidden && (authorization == "" || upstream.ReadFault(answer).Type == "PermissionDeniedError")
}

// disablesThinking reports whether a Messages request may be rendered differently from how it is computed. With
// thinking disabled, /v1/messages/render always uses the effort "none", but /v1/messages uses "low" where the chat
// template has no "none" (_probe_disabled_thinking_effort, anthropic/serving.py). An unreadable value counts as
// disabled.
func disablesThinking(req *body.Request) bool {
	raw := req.Member("thinking")
	if req.API != body.Messages || rawjson.IsNull(raw) {
		return false
	}
	kind, ok := rawjson.Text(rawjson.Get(raw, "type"))
	return !ok || kind == "disabled"
}

func (p *Prompts) agree(ctx context.Context, req *body.Request, authorization string, ids int) error {
	n, err := p.Count(ctx, req, authorization)
	if err == nil && n != ids {
		err = fmt.Errorf("count_tokens: %w: %d tokens, rendered %d", ErrNotComparable, n, ids)
	}
	return err
}

// Count returns the number of tokens in a Messages request by the engine's count_tokens endpoint, within AskLimit. It
// returns ErrNotComparable if there is no such endpoint; other errors are *upstream.LegError.
func (p *Prompts) Count(ctx context.Context, req *body.Request, authorization string) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, p.shared.AskLimit)
	defer cancel()
	at := p.instance()
	status, answer, err := p.post(ctx, body.Messages.Path()+"/count_tokens", req.RenderBody(), authorization)
	switch {
	case err != nil:
		return 0, askFailed(at, "count_tokens", status, nil, err)
	case unserved(status, answer):
		return 0, fmt.Errorf("count_tokens: %w: not served", ErrNotComparable)
	case status != http.StatusOK:
		return 0, askFailed(at, "count_tokens", status, answer, nil)
	}
	n, err := readCount(answer)
	if err != nil {
		return 0, askFailed(at, "count_tokens", status, nil, err)
	}
	return n, nil
}

func readCount(answer []byte) (int, error) {
	o, err := rawjson.ParseObject(answer)
	if err != nil {
		return 0, fmt.Errorf("read answer: %w", err)
	}
	n, ok := rawjson.Integer(o.Get("input_tokens"))
	if !ok || n < 0 {
		return 0, errors.New("answer without a count")
	}
	return n, nil
}

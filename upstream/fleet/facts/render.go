package facts

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"carryover/upstream"
	"carryover/upstream/body"
)

// ErrNoRender is returned by [Prompts.Read] if only a render endpoint can tell the request's ids and there is
// none.
var ErrNoRender = errors.New("no render endpoint")

// renderer is a server that renders prompts for the whole fleet. Another process may take its place at any time, so
// what it does not serve is remembered for renderRest only.
type renderer struct {
	at *upstream.Instance

	mu    sync.Mutex // guards the rest
	found [body.APIs]Finding
	until [body.APIs]time.Time // until when a No counts
}

// renderRest is how long the renderer is not asked again for an endpoint that it does not serve.
const renderRest = 30 * time.Second

// renders says whether it serves the render endpoint of an API, Unknown if it is to be asked.
func (r *renderer) renders(api body.API, now time.Time) Finding {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.found[api] == No && !now.Before(r.until[api]) {
		return Unknown
	}
	return r.found[api]
}

func (r *renderer) learn(api body.API, found Finding, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.found[api], r.until[api] = found, now.Add(renderRest)
}

// Renders says whether prompts of an API with render endpoints can be rendered for this incarnation, by the fleet's
// renderer or by the engine; Unknown before either was asked. It sends nothing.
func (p *Prompts) Renders(api body.API) Finding {
	if r := p.shared.renderer; r != nil {
		return r.renders(api, p.shared.Now())
	}
	return p.foundRender(api)
}

// foundRender says whether the engine has the render endpoint of an API. That can change only with a restart.
func (p *Prompts) foundRender(api body.API) Finding {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.rendering[api]
}

// rendered returns the ids of a prompt that only a render endpoint can tell.
func (p *Prompts) rendered(ctx context.Context, req *body.Request, authorization string) (Prompt, error) {
	if p.Renders(req.API()) == No {
		return Prompt{}, ErrNoRender
	}
	buffer := p.shared.buffers.take()
	var prompt Prompt
	var err error
	if r := p.shared.renderer; r != nil {
		var found Finding
		prompt, found, err = p.shared.render(ctx, r.at, req, authorization, buffer)
		if found != Unknown {
			r.learn(req.API(), found, p.shared.Now())
		}
	} else {
		prompt, err = p.askRender(ctx, req, authorization, buffer)
	}
	if err == nil && disablesThinking(req) {
		err = p.agree(ctx, req, authorization, len(prompt.IDs))
	}
	if err != nil {
		prompt.Done()
		return Prompt{}, err
	}
	prompt.ContextLength = ContextLength(p.engine.Models(), req.Model())
	return prompt, nil
}

// askRender makes the engine render a prompt.
func (p *Prompts) askRender(ctx context.Context, req *body.Request, authorization string, buffer *promptBuffer) (Prompt, error) {
	prompt, found, err := p.shared.render(ctx, p.instance(), req, authorization, buffer)
	if p.known {
		p.mu.Lock()
		p.rendering[req.API()] = max(p.rendering[req.API()], found) // No wins over Yes if two answers disagree
		p.mu.Unlock()
	}
	return prompt, err
}

// render calls a render endpoint. found says whether the endpoint exists; No comes with ErrNoRender. Other errors are
// *upstream.LegError.
func (s *Shared) render(
	ctx context.Context, at *upstream.Instance, req *body.Request, authorization string, buffer *promptBuffer,
) (prompt Prompt, found Finding, err error) {
	status, err := buffer.post(ctx, s.Client, at, req.API().Path()+"/render", req.RenderBody(), authorization)
	switch {
	case err != nil:
		return Prompt{}, Unknown, askFailed(at, "render", status, nil, err)
	case status == http.StatusOK:
		if prompt, err = buffer.read("token_ids"); err != nil {
			return Prompt{}, Unknown, askFailed(at, "render", status, nil, err)
		}
		return prompt, Yes, nil
	case unserved(status, buffer.answer) || switchedOff(status, buffer.answer, authorization):
		return Prompt{}, No, ErrNoRender
	}
	return Prompt{}, Unknown, askFailed(at, "render", status, buffer.answer, nil)
}

// unserved reports whether an answer means that the endpoint does not exist. An unknown model is a 404 too
// (_check_model), but its error names the model: as the member at fault or, in the Messages API, by the error's type.
func unserved(status int, answer []byte) bool {
	if status != http.StatusNotFound {
		return status == http.StatusMethodNotAllowed
	}
	fault := upstream.ReadFault(answer)
	return fault.Param == "" && fault.Type != "NotFoundError"
}

// switchedOff reports whether vLLM runs without --enable-scale-out. Another 403 may be a gateway's verdict on the
// client's own credential, and says nothing of other clients.
func switchedOff(status int, answer []byte, authorization string) bool {
	return status == http.StatusForbidden && (authorization == "" || upstream.ReadFault(answer).Type == "PermissionDeniedError")
}

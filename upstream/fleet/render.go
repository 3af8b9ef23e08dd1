package fleet

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"carryover/upstream"
	"carryover/upstream/body"
	"carryover/upstream/fleet/facts"
)

// ErrNoRender is returned by [Incarnation.Prompt] if only a render endpoint can tell the request's ids and there is
// none.
var ErrNoRender = errors.New("no render endpoint")

// renderer is a server that renders prompts for the whole fleet. Another process may take its place at any time, so
// what it does not serve is remembered for renderRest only.
type renderer struct {
	at *upstream.Instance

	mu    sync.Mutex // guards the rest
	found [body.APIs]facts.Finding
	until [body.APIs]time.Time // until when a No counts
}

// renderRest is how long the renderer is not asked again for an endpoint that it does not serve.
const renderRest = 30 * time.Second

// renders says whether it serves the render endpoint of an API, Unknown if it is to be asked.
func (r *renderer) renders(api body.API, now time.Time) facts.Finding {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.found[api] == facts.No && !now.Before(r.until[api]) {
		return facts.Unknown
	}
	return r.found[api]
}

func (r *renderer) learn(api body.API, found facts.Finding, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.found[api], r.until[api] = found, now.Add(renderRest)
}

// Renders says whether prompts of an API with render endpoints can be rendered for this incarnation, by the fleet's
// renderer or by the engine; Unknown before either was asked. It sends nothing.
func (s *Incarnation) Renders(api body.API) facts.Finding {
	if f := s.engine.fleet; f.renderer != nil {
		return f.renderer.renders(api, f.now())
	}
	return s.foundRender(api)
}

// foundRender says whether the engine has the render endpoint of an API. That can change only with a restart.
func (s *Incarnation) foundRender(api body.API) facts.Finding {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rendering[api]
}

// rendered returns the ids of a prompt that only a render endpoint can tell.
func (s *Incarnation) rendered(ctx context.Context, req *body.Request, authorization string) (Prompt, error) {
	if s.Renders(req.API()) == facts.No {
		return Prompt{}, ErrNoRender
	}
	buffer := s.engine.fleet.buffers.take()
	var prompt Prompt
	var err error
	if r := s.engine.fleet.renderer; r != nil {
		var found facts.Finding
		prompt, found, err = s.engine.fleet.render(ctx, r.at, req, authorization, buffer)
		if found != facts.Unknown {
			r.learn(req.API(), found, s.engine.fleet.now())
		}
	} else {
		prompt, err = s.askRender(ctx, req, authorization, buffer)
	}
	if err == nil && disablesThinking(req) {
		err = s.agrees(ctx, req, authorization, len(prompt.IDs))
	}
	if err != nil {
		prompt.Done()
		return Prompt{}, err
	}
	prompt.ContextLength = s.engine.ContextLength(req.Model())
	return prompt, nil
}

// askRender makes the engine render a prompt.
func (s *Incarnation) askRender(ctx context.Context, req *body.Request, authorization string, buffer *promptBuffer) (Prompt, error) {
	prompt, found, err := s.engine.fleet.render(ctx, s.engine.Instance(), req, authorization, buffer)
	if s.Known() {
		s.mu.Lock()
		s.rendering[req.API()] = max(s.rendering[req.API()], found) // No wins over Yes if two answers disagree
		s.mu.Unlock()
	}
	return prompt, err
}

// render calls a render endpoint. found says whether the endpoint exists; No comes with ErrNoRender. Other errors are
// *upstream.LegError.
func (f *Fleet) render(
	ctx context.Context, at *upstream.Instance, req *body.Request, authorization string, buffer *promptBuffer,
) (prompt Prompt, found facts.Finding, err error) {
	status, err := buffer.post(ctx, f.cfg.Client, at, req.API().Path()+"/render", req.RenderBody(), authorization)
	switch {
	case err != nil:
		return Prompt{}, facts.Unknown, askFailed(at, "render", status, nil, err)
	case status == http.StatusOK:
		if prompt, err = buffer.read("token_ids"); err != nil {
			return Prompt{}, facts.Unknown, askFailed(at, "render", status, nil, err)
		}
		return prompt, facts.Yes, nil
	case unserved(status, buffer.answer) || switchedOff(status, buffer.answer, authorization):
		return Prompt{}, facts.No, ErrNoRender
	}
	return Prompt{}, facts.Unknown, askFailed(at, "render", status, buffer.answer, nil)
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

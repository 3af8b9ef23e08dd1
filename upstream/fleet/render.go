package fleet

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"carryover/upstream"
)

// ErrNoRender is returned by [Incarnation.Prompt] for requests whose ids a render endpoint alone can tell, where there is none.
var ErrNoRender = errors.New("no render endpoint")

// renderer is a server that renders for the whole fleet. It may be another process at any time, so that what it does not serve is believed
// for a while only.
type renderer struct {
	at *upstream.Instance

	mu    sync.Mutex // guards the rest
	found [upstream.APIs]Finding
	until [upstream.APIs]time.Time // No is believed
}

// renderRest is how long a server that renders for the fleet is not asked again for what it does not serve.
const renderRest = 30 * time.Second

// renders tells whether it serves an API's render endpoint, Unknown if that is to be asked.
func (r *renderer) renders(api upstream.API, now time.Time) Finding {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.found[api] == No && !now.Before(r.until[api]) {
		return Unknown
	}
	return r.found[api]
}

func (r *renderer) learn(api upstream.API, found Finding, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.found[api], r.until[api] = found, now.Add(renderRest)
}

// Renders tells whether prompts of an API, one of those that nothing else tells, can be rendered for this incarnation: by the server that renders
// for the whole fleet, or by the engine. Unknown is before either was asked. It asks nothing.
func (s *Incarnation) Renders(api upstream.API) Finding {
	if f := s.engine.fleet; f.renderer != nil {
		return f.renderer.renders(api, f.now())
	}
	return s.foundRender(api)
}

// foundRender tells whether the engine has an API's render endpoint. That does not change before its next incarnation.
func (s *Incarnation) foundRender(api upstream.API) Finding {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rendering[api]
}

// rendered returns the ids of a prompt that render endpoints alone tell.
func (s *Incarnation) rendered(ctx context.Context, req *upstream.Request, authorization string) (Prompt, error) {
	if s.Renders(req.API()) == No {
		return Prompt{}, ErrNoRender
	}
	buffer := s.engine.fleet.buffers.take()
	var prompt Prompt
	var err error
	if r := s.engine.fleet.renderer; r != nil {
		var found Finding
		prompt, found, err = s.engine.fleet.render(ctx, r.at, req, authorization, buffer)
		if found != Unknown {
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

// askRender has the engine render a prompt.
func (s *Incarnation) askRender(ctx context.Context, req *upstream.Request, authorization string, buffer *promptBuffer) (Prompt, error) {
	prompt, found, err := s.engine.fleet.render(ctx, s.engine.Instance(), req, authorization, buffer)
	if s.Known() {
		s.mu.Lock()
		s.rendering[req.API()] = max(s.rendering[req.API()], found) // No, of two that disagree
		s.mu.Unlock()
	}
	return prompt, err
}

// render asks a render endpoint. found tells whether it is served: No comes with ErrNoRender. Other errors are *upstream.LegError.
func (f *Fleet) render(
	ctx context.Context, at *upstream.Instance, req *upstream.Request, authorization string, buffer *promptBuffer,
) (prompt Prompt, found Finding, err error) {
	status, err := buffer.post(ctx, f.cfg.Client, at, req.API().Path()+"/render", req.RenderBody(), authorization)
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

// unserved reports whether a server that answers so has no such endpoint. An unknown model is a 404 too (_check_model), and says so: by the
// member at fault, or, in the shape of the Messages API, by the type of the error.
func unserved(status int, answer []byte) bool {
	if status != http.StatusNotFound {
		return status == http.StatusMethodNotAllowed
	}
	fault := upstream.ReadFault(answer)
	return fault.Param == "" && fault.Type != "NotFoundError"
}

// switchedOff reports whether vLLM was started without --enable-scale-out. A 403 of another kind may be what a gateway says of the
// client's own credential, and tells nothing of the others.
func switchedOff(status int, answer []byte, authorization string) bool {
	return status == http.StatusForbidden && (authorization == "" || upstream.ReadFault(answer).Type == "PermissionDeniedError")
}

package facts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"

	"carryover/sse/rawjson"
	"carryover/upstream"
	"carryover/upstream/body"
)

// ErrNotComparable is returned by [Prompts.Tokenize] if only the completion endpoint can tell the request's ids.
var ErrNotComparable = errors.New("not comparable")

// Prompt is a request's prompt as the engine reads it.
type Prompt struct {
	IDs []uint32
	// List is the JSON list that IDs were read from. It is not to be changed.
	List []byte
	// ContextLength is how many tokens prompt and answer may have together, 0 if that is not known.
	ContextLength int

	buffer *promptBuffer // the buffer that holds them, nil if the request does
}

// Prompts tells how an incarnation reads prompts.
type Prompts struct {
	*asker

	mu        sync.Mutex         // guards the rest
	rendering [body.APIs]Finding // whether it has the render endpoint of the API
	late      late
}

// Tokenize returns the ids of the request's prompt: the ids of the request itself if it has ids, else what the engine
// makes of its text, within a limit that grows with the text. A chat is rendered by the endpoint that does nothing else
// (/v1/chat/completions/render, vLLM with --enable-scale-out) if the incarnation has it, and else by /tokenize. An
// incarnation that is not known is not asked to render, because a refusal could not be remembered. Errors are
// ErrNotComparable, ErrLate or *upstream.LegError.
func (p *Prompts) Tokenize(ctx context.Context, req *body.Request, authorization string) ([]uint32, error) {
	prompt, err := p.ReadSoon(ctx, req, authorization)
	return prompt.IDs, err
}

// ReadSoon is Read for a caller that can do without: it returns ErrLate at once for a prompt that is as long as one which the engine has not
// read in time a while ago.
func (p *Prompts) ReadSoon(ctx context.Context, req *body.Request, authorization string) (Prompt, error) {
	p.mu.Lock()
	spared := p.late.spares(req.Prompt().Bytes(), p.shared.Now())
	p.mu.Unlock()
	if spared {
		return Prompt{}, ErrLate
	}
	return p.Read(ctx, req, authorization)
}

// Read is Tokenize, and also returns the context length. The prompt may use a shared buffer until [Prompt.Done].
// Prompts whose ids only render endpoints can tell ([body.API.Rendered]) are rendered: the error is ErrNoRender
// without such an endpoint, and ErrNotComparable if the completion endpoint may render another prompt. If the engine
// refuses the request, the *upstream.LegError has its refusal.
func (p *Prompts) Read(ctx context.Context, req *body.Request, authorization string) (Prompt, error) {
	if ids, ok := req.Prompt().IDs(); ok {
		list := req.Prompt().Text()
		return Prompt{IDs: ids, List: list, ContextLength: ContextLength(p.engine.Models(), req.Model())}, nil
	}
	size := req.Prompt().Bytes()
	limited, cancel := context.WithTimeout(ctx, askLimit(p.shared.AskLimit, size))
	defer cancel()
	prompt, err := p.ask(limited, req, authorization)
	var failed *upstream.LegError
	if err == nil || limited.Err() != nil && ctx.Err() == nil && errors.As(err, &failed) && failed.Sent {
		p.took(size, err == nil)
	}
	return prompt, err
}

// ask asks for the prompt's ids.
func (p *Prompts) ask(ctx context.Context, req *body.Request, authorization string) (Prompt, error) {
	if req.API().Rendered() {
		return p.rendered(ctx, req, authorization)
	}
	buffers := &p.shared.buffers
	buffer, question := buffers.take(), buffers.ask()
	raw, why, ok := req.TokenizeBody(question.body)
	if !ok {
		return Prompt{}, fmt.Errorf("tokenize: %w: %s", ErrNotComparable, why)
	}
	question.body = raw
	if req.API() == body.Chat && p.known && p.foundRender(body.Chat) != No {
		// Only a missing endpoint leads on to /tokenize. After another failure, /tokenize's ids would be trusted by
		// the parity that was learnt with the render endpoint's.
		if prompt, err := p.askRender(ctx, req, authorization, buffer); !errors.Is(err, ErrNoRender) {
			prompt.ContextLength = ContextLength(p.engine.Models(), req.Model())
			buffers.done(question) // the question was not sent
			return prompt, err
		}
	}
	at := p.instance()
	status, err := buffer.post(ctx, p.shared.Client, at, "/tokenize", raw, authorization)
	if err != nil || status != http.StatusOK {
		return Prompt{}, askFailed(at, "tokenize", status, buffer.answer, err)
	}
	buffers.done(question)
	prompt, err := buffer.read("tokens")
	if err != nil {
		return Prompt{}, askFailed(at, "tokenize", status, nil, err)
	}
	return prompt, nil
}

// ContextLength returns max_model_len of a model's entry in /v1/models, 0 if it is not known. Of a name without one it is that of the first
// entry: a vLLM instance has one for all that it serves, and tells none of adapters (serving_models.py, 0.33).
func ContextLength(models []Model, model string) (length int) {
	for _, m := range models {
		if m.ID == model && m.length > 0 {
			return m.length
		}
		length = cmp.Or(length, m.length)
	}
	return length
}

// askFailed returns the error of a question about a prompt that had no proper answer.
func askFailed(at *upstream.Instance, what string, status int, answer []byte, err error) error {
	failed := &upstream.LegError{Role: at.Role, Instance: at.Name, Kind: upstream.Garbage, Sent: true}
	var op *net.OpError
	switch {
	case errors.As(err, &op) && op.Op == "dial":
		failed.Kind, failed.Sent = upstream.Dial, false
	case err != nil && status == 0:
		failed.Kind = upstream.Broken
	case status != http.StatusOK:
		failed.Kind, failed.Status, failed.Fault = upstream.Status, status, upstream.ReadFault(answer)
	}
	if err != nil {
		failed.Err = fmt.Errorf("%s: %w", what, err)
	}
	return failed
}

// readPrompt parses an answer whose member name is the list of ids. If the answer has a count, it must agree. The list
// is validated and read in one pass; the ids are stored in into if they fit.
func readPrompt(answer []byte, name string, into []uint32) (prompt Prompt, err error) {
	found := false
	o, err := rawjson.ParseObjectFunc(answer, func(s *rawjson.Scanner, member []byte) error {
		if string(member) != name {
			return s.Skip()
		}
		from := s.Pos
		if prompt.IDs, found = s.IDsInto(into); !found {
			return s.Fault("expected a list of token ids")
		}
		prompt.List = answer[from:s.Pos]
		return nil
	})
	if err != nil {
		return Prompt{}, fmt.Errorf("read answer: %w", err)
	}
	if !found || len(prompt.IDs) == 0 {
		return Prompt{}, errors.New("answer without ids")
	}
	if n, given := rawjson.Integer(o.Get("count")); given && n != len(prompt.IDs) {
		return Prompt{}, errors.New("answer with another count than its ids")
	}
	length, _ := rawjson.Integer(o.Get("max_model_len"))
	prompt.ContextLength = max(length, 0)
	return prompt, nil
}

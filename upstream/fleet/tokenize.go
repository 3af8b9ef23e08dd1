package fleet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"

	"carryover/sse/rawjson"
	"carryover/upstream"
)

// ErrNotComparable is returned by [Incarnation.Tokenize] for requests whose ids the completion
// endpoint alone can tell.
var ErrNotComparable = errors.New("not comparable")

// Prompt is what an engine makes of a request's prompt.
type Prompt struct {
	IDs []uint32
	// List is how IDs were told, a JSON list. It is not to be changed.
	List []byte
	// ContextLength is how many tokens prompt and answer may have together, 0 if the engine has not told.
	ContextLength int

	buffer *promptBuffer // in which they are, nil if they are the request's
}

// Tokenize returns the ids of the request's prompt: the prompt itself if it is
// ids, else what the engine makes of it within the limit for a question. A chat is
// rendered by the endpoint that does nothing else (/v1/chat/completions/render, vLLM with
// --enable-scale-out), where an incarnation has it; all others have /tokenize. An incarnation that is
// not known is not asked to render: that it offers none could not be remembered.
// Requests that are not comparable are ErrNotComparable; other errors are *upstream.LegError.
func (s *Incarnation) Tokenize(ctx context.Context, req *upstream.Request, authorization string) ([]uint32, error) {
	prompt, err := s.Prompt(ctx, req, authorization)
	return prompt.IDs, err
}

// Prompt is Tokenize, and says how long prompt and answer may be together. Its memory may be lent until [Prompt.Done]. Prompts that
// render endpoints alone tell ([upstream.API.Rendered]) are rendered, or fail: ErrNoRender where there is no such endpoint,
// ErrNotComparable where the completion endpoint may render another prompt. An engine that refuses the request does so in the
// *upstream.LegError.
func (s *Incarnation) Prompt(ctx context.Context, req *upstream.Request, authorization string) (Prompt, error) {
	if ids, ok := req.PromptIDs(); ok {
		_, list := req.Prompt()
		return Prompt{IDs: ids, List: list, ContextLength: s.engine.ContextLength(req.Model())}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.engine.fleet.cfg.AskLimit)
	defer cancel()
	if req.API().Rendered() {
		return s.rendered(ctx, req, authorization)
	}
	buffers := &s.engine.fleet.buffers
	buffer, question := buffers.take(), buffers.ask()
	body, why, ok := req.TokenizeBody(question.body)
	if !ok {
		return Prompt{}, fmt.Errorf("tokenize: %w: %s", ErrNotComparable, why)
	}
	question.body = body
	if req.API() == upstream.Chat && s.Known() && s.foundRender(upstream.Chat) != No {
		// Every failure but that there is none is final: to fall back on it would let parity that was learnt with one endpoint speak for
		// the other.
		if prompt, err := s.askRender(ctx, req, authorization, buffer); !errors.Is(err, ErrNoRender) {
			prompt.ContextLength = s.engine.ContextLength(req.Model())
			buffers.done(question) // and was not asked
			return prompt, err
		}
	}
	at := s.engine.Instance()
	status, err := buffer.post(ctx, s.engine.fleet.cfg.Client, at, "/tokenize", body, authorization)
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

// ContextLength is max_model_len of a model's card, of the first card for a request that names no model; 0 if no list is known.
func (e *Engine) ContextLength(model string) int {
	for _, m := range e.models() {
		if m.ID == model || model == "" {
			card, err := rawjson.ParseObject(m.Card)
			if err != nil {
				return 0
			}
			length, _ := rawjson.Integer(card.Get("max_model_len"))
			return max(length, 0)
		}
	}
	return 0
}

// askFailed is a question for a prompt that was not answered as it should have been.
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

// readPrompt reads an answer whose named member is the list of ids. A count beside it must agree. The list is read as it is found to be
// valid, once; the ids are in room if they fit there.
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

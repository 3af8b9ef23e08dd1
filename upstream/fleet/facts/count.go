package facts

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"carryover/sse/rawjson"
	"carryover/upstream/body"
)

// disablesThinking reports whether a Messages request may be rendered differently from how it is computed. With
// thinking disabled, /v1/messages/render always uses the effort "none", but /v1/messages uses "low" where the chat
// template has no "none" (_probe_disabled_thinking_effort, anthropic/serving.py). A value that can't be read counts as
// disabled.
func disablesThinking(req *body.Request) bool {
	raw, found := req.Member("thinking")
	if req.API() != body.Messages || !found || rawjson.IsNull(raw) {
		return false
	}
	thinking, err := rawjson.ParseObject(raw)
	if err != nil {
		return true
	}
	kind, ok := rawjson.Text(thinking.Get("type"))
	return !ok || kind == "disabled"
}

// agree compares the number of rendered ids with the engine's own count of the prompt's tokens. It returns
// ErrNotComparable if they differ.
func (p *Prompts) agree(ctx context.Context, req *body.Request, authorization string, ids int) error {
	n, err := p.Count(ctx, req, authorization)
	if err == nil && n != ids {
		err = fmt.Errorf("count_tokens: %w: %d tokens, rendered %d", ErrNotComparable, n, ids)
	}
	return err
}

// Count returns how many tokens the prompt of a Messages request has, by the engine's count_tokens endpoint, within
// AskLimit. It returns ErrNotComparable if the engine's answer has no count; other errors are *upstream.LegError.
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

// readCount reads an answer of count_tokens.
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

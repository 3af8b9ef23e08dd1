package upstream

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"carryover/sse/rawjson"
)

// ErrNotComparable is returned by [Tokenizer.Tokenize] for requests whose ids
// nobody but the completion endpoint itself can tell.
var ErrNotComparable = errors.New("not comparable")

// PromptIDs returns the ids of a text completion whose prompt is a list of ids.
// They are what the engine computes: it neither renders nor adds to them.
func (r *Request) PromptIDs() (ids []uint32, ok bool) {
	kind, raw := r.Prompt()
	if r.api != Text || kind != PromptTokens {
		return nil, false
	}
	ids, ok = rawjson.ParseIDs(raw)
	return ids, ok && len(ids) > 0
}

// TokenizeBody returns the body with which /tokenize renders what the completion
// endpoint would, as far as a body can do that: TokenizeChatRequest and
// TokenizeCompletionRequest (serve/tokenize/protocol.py) know some of the members
// only, and three of the others have another place there. Values keep their
// bytes. ok is false, with the reason, if the request is not comparable, see
// [Request.FeatureSet]; prompts that are ids need no body.
func (r *Request) TokenizeBody() (body []byte, why string, ok bool) {
	f, why := r.features()
	if why != "" {
		return nil, why, false
	}
	kwargs, ok := r.templateKwargs()
	if !ok {
		return nil, WhyMemberValue, false
	}
	body = append(make([]byte, 0, r.Size()+128), '{')
	put := func(name string, value []byte) {
		if len(body) > 1 {
			body = append(body, ',')
		}
		body = append(append(append(body, '"'), name...), `":`...)
		body = append(body, value...)
	}
	for name, value := range r.Members() {
		if rawjson.IsNull(value) || !r.api.tokenizes(name) {
			continue
		}
		if name == "messages" && f.renamed {
			if value, ok = renameReasoning(value); !ok {
				return nil, WhyMessages, false
			}
		}
		put(name, value)
	}
	if kwargs != nil && r.api == Chat {
		put("chat_template_kwargs", kwargs)
	}
	return append(body, '}'), "", true
}

// tokenizes lists the members that /tokenize takes as the API has them.
func (a API) tokenizes(name string) bool {
	switch name {
	case "model", "add_special_tokens":
		return true
	case "prompt":
		return a == Text
	case "messages", "tools", "chat_template", "add_generation_prompt", "continue_final_message", "mm_processor_kwargs",
		"media_io_kwargs":
		return a == Chat
	}
	return false
}

// templateKwargs returns the template arguments that the chat endpoint makes of
// chat_template_kwargs, documents and reasoning_effort (build_chat_params,
// chat_completion/protocol.py): the latter two win over arguments of their names,
// and an effort turns thinking on unless the arguments speak of it. nil means
// none.
func (r *Request) templateKwargs() (kwargs []byte, ok bool) {
	kwargs = r.body.Get("chat_template_kwargs")
	documents, effort := r.body.Get("documents"), r.body.Get("reasoning_effort")
	if rawjson.IsNull(kwargs) {
		kwargs = nil
	}
	if rawjson.IsNull(documents) && rawjson.IsNull(effort) {
		return kwargs, true
	}
	if kwargs == nil {
		kwargs = []byte("{}")
	}
	o, err := rawjson.ParseObject(kwargs)
	if err != nil {
		return nil, false
	}
	var changes rawjson.Edits
	if !rawjson.IsNull(documents) {
		changes.Set("documents", documents)
	}
	if !rawjson.IsNull(effort) {
		changes.Set("reasoning_effort", effort)
		if !o.Has("enable_thinking") {
			changes.Set("enable_thinking", []byte("true"))
		}
	}
	return o.Rewrite(changes), true
}

// RenderBody returns the body of the request for /v1/chat/completions/render, which
// takes what the chat endpoint takes.
func (r *Request) RenderBody() []byte {
	var changes rawjson.Edits
	changes.Remove("stream", "stream_options")
	return r.body.Rewrite(changes)
}

// Tokenizer asks prefill instances for the ids of prompts. It is safe for
// concurrent use.
type Tokenizer struct {
	client       *Client
	incarnations *Incarnations
	limit        time.Duration

	mu    sync.Mutex        // guards plain
	plain map[string]string // base URL → incarnation that offers no rendering
}

// NewTokenizer returns a tokenizer that asks through client and waits at most
// limit per prompt.
func NewTokenizer(client *Client, incarnations *Incarnations, limit time.Duration) *Tokenizer {
	return &Tokenizer{client: client, incarnations: incarnations, limit: limit, plain: map[string]string{}}
}

// Tokenize returns the ids of the request's prompt: the prompt itself if it is
// ids, else what the instance makes of it. A chat is rendered by the endpoint
// that does nothing else (/v1/chat/completions/render, vLLM with
// --enable-scale-out), where an instance has it; all others have /tokenize.
// Requests that are not comparable are ErrNotComparable.
func (t *Tokenizer) Tokenize(ctx context.Context, instance *Instance, req *Request, authorization string) ([]uint32, error) {
	if ids, ok := req.PromptIDs(); ok {
		return ids, nil
	}
	body, why, ok := req.TokenizeBody()
	if !ok {
		return nil, fmt.Errorf("tokenize: %w: %s", ErrNotComparable, why)
	}
	ctx, cancel := context.WithTimeout(ctx, t.limit)
	defer cancel()
	if incarnation, may := t.mayRender(ctx, instance, req); may {
		ids, offered, err := t.render(ctx, instance, req, authorization)
		if offered {
			return ids, err
		}
		t.remember(instance, incarnation)
	}
	status, answer, err := t.client.Post(ctx, instance, "/tokenize", body, authorization)
	if err != nil {
		return nil, fmt.Errorf("tokenize: %w", err)
	}
	if status != http.StatusOK {
		return nil, fmt.Errorf("tokenize: status %d", status)
	}
	ids, err := answerIDs(answer, "tokens")
	if err != nil {
		return nil, fmt.Errorf("tokenize: %w", err)
	}
	return ids, nil
}

// render asks the render endpoint. offered is false if the instance has none.
// Every other failure is final: to fall back on it would let parity that was
// learnt with one endpoint speak for the other.
func (t *Tokenizer) render(ctx context.Context, instance *Instance, req *Request, authorization string) (ids []uint32, offered bool, err error) {
	status, answer, err := t.client.Post(ctx, instance, Chat.Path()+"/render", req.RenderBody(), authorization)
	if err != nil {
		return nil, true, fmt.Errorf("render: %w", err)
	}
	switch status {
	case http.StatusOK:
		if ids, err = answerIDs(answer, "token_ids"); err != nil {
			return nil, true, fmt.Errorf("render: %w", err)
		}
		return ids, true, nil
	case http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed:
		// An unknown model is a 404 too (_check_model), and says so.
		if fault := ReadFault(answer); fault.Param == "" {
			return nil, false, nil
		}
	}
	return nil, true, fmt.Errorf("render: status %d", status)
}

// mayRender reports whether rendering is worth asking for, and of whom. An
// instance whose incarnation is unknown is not asked: what it answers could not
// be remembered.
func (t *Tokenizer) mayRender(ctx context.Context, instance *Instance, req *Request) (incarnation string, may bool) {
	if req.api != Chat {
		return "", false
	}
	facts, ok := t.incarnations.Current(ctx, instance)
	if !ok {
		return "", false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return facts.Incarnation, t.plain[instance.BaseURL] != facts.Incarnation
}

// remember records that this start of the instance offers no rendering.
func (t *Tokenizer) remember(instance *Instance, incarnation string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.plain) >= maxRemembered {
		clear(t.plain)
	}
	t.plain[instance.BaseURL] = incarnation
}

// answerIDs reads the list of ids that is the named member of an answer. A count
// beside it must agree.
func answerIDs(answer []byte, name string) (ids []uint32, err error) {
	found := false
	o, err := rawjson.ParseObjectFunc(answer, func(s *rawjson.Scanner, member []byte) error {
		if string(member) != name {
			return s.Skip()
		}
		if ids, found = s.IDs(); !found {
			return s.Fault("expected a list of token ids")
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read answer: %w", err)
	}
	if !found || len(ids) == 0 {
		return nil, errors.New("answer without ids")
	}
	if n, given := rawjson.Integer(o.Get("count")); given && n != len(ids) {
		return nil, errors.New("answer with another count than its ids")
	}
	return ids, nil
}

package upstream

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tidwall/gjson"
)

// Templates finds out whether a model's chat template is append-only: whether a
// finished turn, rendered as history, begins with the very tokens that were
// rendered to generate it. Some are not: they drop earlier reasoning, or
// end the generation prompt with tokens that history does not repeat
// (Qwen3 with thinking off ends it with an empty think block). Then decode's
// blocks are no prefix of the next prompt, however faithful the client.
type Templates struct {
	client *Client
	limit  time.Duration

	mu    sync.Mutex // guards known
	known map[[32]byte]bool
}

// maxTemplates bounds what is remembered; a deployment has a handful of models
// and kwargs, and a hostile client that invents kwargs only clears it.
const maxTemplates = 1024

// NewTemplates returns an empty memory that asks through client and waits at most
// limit per question.
func NewTemplates(client *Client, limit time.Duration) *Templates {
	return &Templates{client: client, limit: limit, known: map[[32]byte]bool{}}
}

// AppendOnly asks an instance to tokenise a one-message conversation and its
// continuation, with the request's chat_template_kwargs (raw JSON, nil if
// absent), and compares. ok is false if the engine could not be asked; nothing
// is remembered then.
func (t *Templates) AppendOnly(ctx context.Context, instance *Instance, model string, kwargs []byte, authorization string) (appendOnly, ok bool) {
	key := sha256.Sum256(fmt.Appendf(nil, "%d:%s%s", len(model), model, kwargs))
	t.mu.Lock()
	appendOnly, ok = t.known[key]
	t.mu.Unlock()
	if ok {
		return appendOnly, true
	}
	ctx, cancel := context.WithTimeout(ctx, t.limit)
	defer cancel()
	appendOnly, err := t.ask(ctx, instance, model, kwargs, authorization)
	if err != nil {
		return false, false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.known) >= maxTemplates {
		clear(t.known)
	}
	t.known[key] = appendOnly
	return appendOnly, true
}

// The sample has no white space at its ends: many templates trim content, which
// changes nothing for replies that have none, and others are not eligible.
const (
	sampleQuestion = "What is kept between two turns?"
	sampleAnswer   = "The blocks are kept."
)

func (t *Templates) ask(ctx context.Context, instance *Instance, model string, kwargs []byte, authorization string) (bool, error) {
	type message struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	}
	turn := []message{{"user", sampleQuestion}}
	next := append(slices.Clone(turn), message{"assistant", sampleAnswer}, message{"user", sampleQuestion})
	tokenize := func(fields map[string]any) ([]byte, error) {
		fields["model"] = model
		body, err := json.Marshal(fields)
		if err != nil {
			return nil, fmt.Errorf("tokenize: %w", err)
		}
		answer, err := t.client.Post(ctx, instance, "/tokenize", body, authorization)
		if err != nil {
			return nil, err
		}
		ids := gjson.GetBytes(answer, "tokens")
		if !gjson.ValidBytes(answer) || !ids.IsArray() {
			return nil, fmt.Errorf("tokenize: answer without tokens")
		}
		list := bytes.Trim([]byte(ids.Raw), "[] \n")
		return append(list, ','), nil
	}
	chat := func(messages []message) ([]byte, error) {
		fields := map[string]any{"messages": messages, "add_generation_prompt": true}
		if kwargs != nil {
			fields["chat_template_kwargs"] = json.RawMessage(kwargs)
		}
		return tokenize(fields)
	}
	before, err := chat(turn)
	if err != nil {
		return false, err
	}
	after, err := chat(next)
	if err != nil {
		return false, err
	}
	answer, err := tokenize(map[string]any{"prompt": sampleAnswer, "add_special_tokens": false})
	if err != nil {
		return false, err
	}
	// vLLM writes the ids without spaces, so equal lists are equal bytes; another
	// spelling makes the comparison fail, which only costs reuse.
	return bytes.HasPrefix(after, append(before, answer...)), nil
}

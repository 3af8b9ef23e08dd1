package upstream

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"
)

// Templates finds out whether a model's chat template is append-only: whether a
// finished turn, rendered as history, begins with the very tokens that were
// rendered to generate it. Some are not: they drop earlier reasoning, or
// end the generation prompt with tokens that history does not repeat
// (Qwen3 with thinking off ends it with an empty think block). Then decode's
// blocks are no prefix of the next prompt, however faithful the client.
//
// What was found out holds for one start of one instance: the next may come up with
// another template. It is safe for concurrent use.
type Templates struct {
	client *Client
	asked  *questions

	mu    sync.Mutex // guards known
	known map[[sha256.Size]byte]Finding
}

// Template names a chat template as a request does: model, and chat_template_kwargs as
// raw JSON, nil if absent.
type Template struct {
	Model  string
	Kwargs []byte
}

// maxTemplates bounds what is remembered; a deployment has a handful of models
// and kwargs, and a hostile client that invents kwargs only clears it.
const maxTemplates = 1024

// templateRetry is how long an engine that did not answer is not asked again.
const templateRetry = 5 * time.Second

// NewTemplates returns an empty memory that asks through client and waits at most
// limit per question.
func NewTemplates(client *Client, limit time.Duration) *Templates {
	return &Templates{client: client, asked: newQuestions(limit, templateRetry), known: map[[sha256.Size]byte]Finding{}}
}

// AppendOnly asks a start of an instance to tokenise a one-message conversation and
// its continuation, and compares. An engine that has no /tokenize (404, 405) can't be
// asked, and its templates are taken to be append-only. Unknown means that the question
// failed, that ctx ended before it was answered, or that the start is not known (""); a
// failure is remembered for five seconds, for the credential that met it.
func (t *Templates) AppendOnly(ctx context.Context, instance *Instance, incarnation string, template Template, authorization string) Finding {
	if incarnation == "" {
		return Unknown
	}
	key := digest(instance.BaseURL, incarnation, template.Model, string(template.Kwargs))
	if found := t.read(key); found != Unknown {
		return found
	}
	wait(ctx, t.asked.ask(ctx, digest(string(key[:]), authorization), func(ctx context.Context) error {
		found, err := t.ask(ctx, instance, template, authorization)
		if err == nil {
			t.write(key, found)
		}
		return err
	}))
	return t.read(key)
}

func (t *Templates) read(key [sha256.Size]byte) Finding {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.known[key]
}

func (t *Templates) write(key [sha256.Size]byte, found Finding) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.known) >= maxTemplates {
		clear(t.known)
	}
	t.known[key] = found
}

// The sample has no white space at its ends: many templates trim content, which
// changes nothing for replies that have none, and others are not eligible.
const (
	sampleQuestion = "What is kept between two turns?"
	sampleAnswer   = "The blocks are kept."
)

// errNoTokenize is an engine without /tokenize.
var errNoTokenize = errors.New("tokenize: not offered")

func (t *Templates) ask(ctx context.Context, instance *Instance, template Template, authorization string) (Finding, error) {
	type message struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	}
	turn := []message{{"user", sampleQuestion}}
	next := append(slices.Clone(turn), message{"assistant", sampleAnswer}, message{"user", sampleQuestion})
	tokenize := func(fields map[string]any) ([]uint32, error) {
		fields["model"] = template.Model
		body, err := json.Marshal(fields)
		if err != nil {
			return nil, fmt.Errorf("tokenize: %w", err)
		}
		return t.tokenize(ctx, instance, body, authorization)
	}
	chat := func(messages []message) ([]uint32, error) {
		fields := map[string]any{"messages": messages, "add_generation_prompt": true}
		if template.Kwargs != nil {
			fields["chat_template_kwargs"] = json.RawMessage(template.Kwargs)
		}
		return tokenize(fields)
	}
	before, err := chat(turn)
	if errors.Is(err, errNoTokenize) {
		return Yes, nil
	}
	if err != nil {
		return Unknown, err
	}
	after, err := chat(next)
	if err != nil {
		return Unknown, err
	}
	answer, err := tokenize(map[string]any{"prompt": sampleAnswer, "add_special_tokens": false})
	if err != nil {
		return Unknown, err
	}
	finished := append(before, answer...)
	if len(finished) <= len(after) && slices.Equal(finished, after[:len(finished)]) {
		return Yes, nil
	}
	return No, nil
}

func (t *Templates) tokenize(ctx context.Context, instance *Instance, body []byte, authorization string) ([]uint32, error) {
	status, answer, err := t.client.Post(ctx, instance, "/tokenize", body, authorization)
	if err != nil {
		return nil, fmt.Errorf("tokenize: %w", err)
	}
	switch status {
	case http.StatusOK:
		ids, err := answerIDs(answer, "tokens")
		if err != nil {
			return nil, fmt.Errorf("tokenize: %w", err)
		}
		return ids, nil
	case http.StatusNotFound, http.StatusMethodNotAllowed:
		// An unknown model is a 404 too (_check_model), and says so.
		if fault := ReadFault(answer); fault.Param == "" && fault.Type != "NotFoundError" {
			return nil, errNoTokenize
		}
	}
	return nil, fmt.Errorf("tokenize: status %d", status)
}

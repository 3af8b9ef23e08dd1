package facts

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

	"carryover/upstream"
)

// templateRetry is how long a question about a template that failed is not asked again.
const templateRetry = 5 * time.Second

// Template is what an incarnation has shown of its chat templates.
type Template struct {
	*asker
	renders *questions

	mu    sync.Mutex // guards the rest
	found map[[sha256.Size]byte]Finding
}

// AppendOnly finds out whether a model's chat template is append-only: whether the tokens of a finished turn, rendered
// as history, begin with the tokens that were rendered to generate it. Some templates are not: they drop earlier
// reasoning, or end the generation prompt with tokens that history does not repeat (Qwen3 with thinking off ends it
// with an empty think block). Then decode's blocks are no prefix of the next prompt, even if the client repeats
// everything.
//
// The template is identified by the model and the raw JSON of chat_template_kwargs, nil if absent. AppendOnly makes
// the engine tokenise a conversation of one message and its continuation, and compares the two. Templates of an engine
// without /tokenize (404, 405) are taken to be append-only. Unknown means that the question failed, that ctx ended
// first, or that the incarnation is not known. A failure is remembered for five seconds, for the credential that met
// it.
func (t *Template) AppendOnly(ctx context.Context, model string, kwargs []byte, authorization string) Finding {
	if !t.known {
		return Unknown
	}
	key := digest(model, string(kwargs))
	if found := t.of(key); found != Unknown {
		return found
	}
	wait(ctx, t.renders.ask(ctx, digest(string(key[:]), authorization), func(ctx context.Context) error {
		found, err := t.compare(ctx, model, kwargs, authorization)
		if err == nil {
			t.learn(key, found)
		}
		return err
	}))
	return t.of(key)
}

// Found returns what AppendOnly has found, and sends nothing.
func (t *Template) Found(model string, kwargs []byte) Finding {
	return t.of(digest(model, string(kwargs)))
}

func (t *Template) of(key [sha256.Size]byte) Finding {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.found[key]
}

func (t *Template) learn(key [sha256.Size]byte, found Finding) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.found == nil || len(t.found) >= maxLearnt {
		t.found = map[[sha256.Size]byte]Finding{}
	}
	t.found[key] = found
}

// The sample has no white space at its ends, because many templates trim content. That changes nothing for answers
// without such white space, and other answers are not eligible.
const (
	sampleQuestion = "What is kept between two turns?"
	sampleAnswer   = "The blocks are kept."
)

// errNoTokenize says that the engine has no /tokenize.
var errNoTokenize = errors.New("tokenize: not offered")

func (t *Template) compare(ctx context.Context, model string, kwargs []byte, authorization string) (Finding, error) {
	type message struct {
		Role    string `json:"role"`
		Content string `json:"content"`
	}
	turn := []message{{"user", sampleQuestion}}
	next := append(slices.Clone(turn), message{"assistant", sampleAnswer}, message{"user", sampleQuestion})
	tokenize := func(fields map[string]any) ([]uint32, error) {
		fields["model"] = model
		body, err := json.Marshal(fields)
		if err != nil {
			return nil, fmt.Errorf("tokenize: %w", err)
		}
		return t.tokenizeSample(ctx, body, authorization)
	}
	chat := func(messages []message) ([]uint32, error) {
		fields := map[string]any{"messages": messages, "add_generation_prompt": true}
		if kwargs != nil {
			fields["chat_template_kwargs"] = json.RawMessage(kwargs)
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

func (t *Template) tokenizeSample(ctx context.Context, body []byte, authorization string) ([]uint32, error) {
	status, answer, err := t.post(ctx, "/tokenize", body, authorization)
	if err != nil {
		return nil, fmt.Errorf("tokenize: %w", err)
	}
	switch status {
	case http.StatusOK:
		prompt, err := readPrompt(answer, "tokens", nil)
		if err != nil {
			return nil, fmt.Errorf("tokenize: %w", err)
		}
		return prompt.IDs, nil
	case http.StatusNotFound, http.StatusMethodNotAllowed:
		// An unknown model is a 404 too (_check_model), but its error names the model.
		if fault := upstream.ReadFault(answer); fault.Param == "" && fault.Type != "NotFoundError" {
			return nil, errNoTokenize
		}
	}
	return nil, fmt.Errorf("tokenize: status %d", status)
}

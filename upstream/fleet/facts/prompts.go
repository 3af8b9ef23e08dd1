package facts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"carryover/sse/rawjson"
	"carryover/upstream"
	"carryover/upstream/body"
)

// ErrNotComparable says that only the completion endpoint can tell the request's ids ([Prompts.Read]).
var ErrNotComparable = errors.New("not comparable")

// Prompt is a request's prompt as the engine reads it.
type Prompt struct {
	IDs []uint32
	// List is the JSON list of IDs. Callers must not change it.
	List []byte
	// ContextLength bounds prompt and answer together, in tokens; 0 if unknown.
	ContextLength int

	buffer *promptBuffer // holds them; nil if the request does
}

// Prompts tells how an incarnation reads prompts.
type Prompts struct {
	*asker

	own renderer // the engine

	mu   sync.Mutex // guards the rest
	late late
}

// ReadSoon is Read for a caller that needs no result. It returns ErrLate immediately if the engine was late a while ago with a prompt that
// is no longer.
func (p *Prompts) ReadSoon(ctx context.Context, req *body.Request, authorization string) (Prompt, error) {
	p.mu.Lock()
	spared := p.late.spares(req.Prompt().Bytes(), p.shared.Now())
	p.mu.Unlock()
	if spared {
		return Prompt{}, ErrLate
	}
	return p.Read(ctx, req, authorization)
}

// Read returns the prompt: the ids that the request has, else those that the engine makes of its text, within a limit that grows with the
// text. A chat is rendered by /v1/chat/completions/render (vLLM with --enable-scale-out) if the incarnation has it, else by /tokenize. An
// unknown incarnation is not asked to render, because a refusal could not be remembered. The prompt may use a shared buffer until
// [Prompt.Done].
//
// Prompts of other APIs ([body.API.Rendered]) need a render endpoint: the error is ErrNoRender without one, and ErrNotComparable if the
// completion endpoint may render another prompt. Other errors are ErrLate, or *upstream.LegError with the engine's refusal if there is one.
func (p *Prompts) Read(ctx context.Context, req *body.Request, authorization string) (Prompt, error) {
	if ids, ok := req.Prompt().IDs(); ok {
		list := req.Prompt().Text()
		return Prompt{IDs: ids, List: list, ContextLength: ContextLength(p.engine.Models(), req.Model)}, nil
	}
	size := req.Prompt().Bytes()
	limited, cancel := context.WithTimeout(ctx, askLimit(p.shared.AskLimit, size))
	defer cancel()
	prompt, err := p.ask(limited, req, authorization)
	var failed *upstream.LegError
	if err == nil || limited.Err() != nil && ctx.Err() == nil && errors.As(err, &failed) && failed.Sent {
		p.mu.Lock()
		first := p.late.took(size, err == nil, p.shared.Now())
		p.mu.Unlock()
		if first {
			p.shared.Logger.Warn("engine is late with the ids of a prompt; prompts of this length reuse nothing meanwhile",
				"instance", p.instance().Name, "bytes", size, "limit", askLimit(p.shared.AskLimit, size).String(),
				"advice", "give its API server more CPU: it tokenises beside the streams that it serves")
		}
	}
	return prompt, err
}

func (p *Prompts) ask(ctx context.Context, req *body.Request, authorization string) (Prompt, error) {
	if req.API.Rendered() {
		return p.rendered(ctx, req, authorization)
	}
	question, buffer := p.shared.buffer(), p.shared.buffer()
	raw, why, ok := req.TokenizeBody(question.text)
	if !ok {
		return Prompt{}, fmt.Errorf("tokenize: %w: %s", ErrNotComparable, why)
	}
	question.text = raw
	if req.API == body.Chat && p.known && p.own.renders(body.Chat, p.shared.Now()) != No {
		// Only a missing endpoint leads on to /tokenize. After another failure, the parity that the render endpoint has
		// shown would vouch for /tokenize's ids.
		if prompt, err := p.askRender(ctx, &p.own, req, authorization, buffer); !errors.Is(err, ErrNoRender) {
			prompt.ContextLength = ContextLength(p.engine.Models(), req.Model)
			question.done() // the question was not sent
			return prompt, err
		}
	}
	at := p.instance()
	status, answer, err := p.shared.Client.Post(ctx, at, "/tokenize", raw, authorization, buffer.text)
	if err != nil || status != http.StatusOK {
		return Prompt{}, askFailed(at, "tokenize", status, answer, err)
	}
	question.done() // it is written by then, and net/http has its own copy of what it may still write
	buffer.text = answer
	prompt, err := buffer.read("tokens")
	if err != nil {
		return Prompt{}, askFailed(at, "tokenize", status, nil, err)
	}
	return prompt, nil
}

// ContextLength returns a model's max_model_len in /v1/models, 0 if unknown. Without one it returns the first entry's: a vLLM instance has
// one for all models, and tells none of adapters (serving_models.py, 0.33).
func ContextLength(models []Model, model string) (length int) {
	for _, m := range models {
		if m.ID == model && m.length > 0 {
			return m.length
		}
		length = cmp.Or(length, m.length)
	}
	return length
}

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

// ErrLate says that an engine was not asked for a prompt's ids, because it was late with one that is no longer.
var ErrLate = errors.New("prompts of this length are not read in time")

// askedWithin is how many bytes of a prompt add the limit of a short one. vLLM tokenises some hundred times as fast.
const askedWithin = 8 << 10

// askLimit bounds the reading of a prompt, for which a turn waits. limit is for a short prompt.
func askLimit(limit time.Duration, bytes int) time.Duration {
	return limit + limit*time.Duration(min(bytes, 14*askedWithin))/askedWithin
}

// An engine that was late with a prompt is not asked for such prompts for lateFirst, and each further time for twice as long, up to lateMax:
// each costs a turn its whole limit.
const (
	lateFirst = 10 * time.Second
	lateMax   = 30 * time.Minute
)

type late struct {
	bytes  int           // the shortest late prompt
	pause  time.Duration // 0 if none was late
	until  time.Time     // when one may be asked for again
	trying bool          // one is being asked for
}

// spares reports whether the engine is not to be asked. After the pause, one prompt may be.
func (l *late) spares(bytes int, now time.Time) bool {
	if l.pause == 0 || bytes < l.bytes {
		return false
	}
	if now.Before(l.until) {
		return true
	}
	l.until, l.trying = now.Add(lateFirst), true // its client may leave
	return false
}

func (l *late) took(bytes int, inTime bool, now time.Time) (first bool) {
	switch {
	case inTime && bytes >= l.bytes:
		*l = late{}
	case inTime:
	case l.pause == 0:
		if *l = (late{bytes: bytes, pause: lateFirst, until: now}); bytes >= askedWithin { // a short prompt may only have met a busy moment
			l.until = now.Add(lateFirst)
		}
		return true
	default:
		l.bytes = min(l.bytes, bytes)
		if l.trying { // else it was asked for before the pause
			l.pause, l.trying = min(2*l.pause, lateMax), false
			l.until = now.Add(l.pause)
		}
	}
	return false
}

// promptBuffer is reusable memory for a question, which is as large as its request, or for an answer. They are most of what a short turn
// under the token proof would allocate: 37 of 55 kB for prompts of 2,600 tokens.
type promptBuffer struct {
	of   *sync.Pool
	text []byte
	ids  []uint32
}

// An answer with some 60,000 tokens.
const maxPromptBuffer = 1 << 20

func (s *Shared) buffer() *promptBuffer {
	if buffer, ok := s.buffers.Get().(*promptBuffer); ok {
		return buffer
	}
	return &promptBuffer{of: &s.buffers}
}

func (p *promptBuffer) done() {
	if cap(p.text)+4*cap(p.ids) <= maxPromptBuffer {
		p.of.Put(p)
	}
}

// read parses an answer whose list of ids is called name. A count in the answer must agree. One pass validates and
// reads the list.
func (p *promptBuffer) read(name string) (prompt Prompt, err error) {
	found := false
	o, err := rawjson.ParseObjectFunc(p.text, func(s *rawjson.Scanner, member []byte) error {
		if string(member) != name {
			return s.Skip()
		}
		from := s.Pos
		if prompt.IDs, found = s.IDsInto(p.ids); !found {
			return s.Fault("expected a list of token ids")
		}
		prompt.List = p.text[from:s.Pos]
		return nil
	})
	if err != nil {
		return Prompt{}, fmt.Errorf("read answer: %w", err)
	}
	if !found || len(prompt.IDs) == 0 {
		return Prompt{}, errors.New("answer without ids")
	}
	if n, given := rawjson.Integer(o.Get("count")); given && n != len(prompt.IDs) {
		return Prompt{}, errors.New("answer whose count differs from its ids")
	}
	length, _ := rawjson.Integer(o.Get("max_model_len"))
	p.ids, prompt.buffer, prompt.ContextLength = prompt.IDs, p, max(length, 0)
	return prompt, nil
}

// Done gives the prompt's buffer back. Nothing may use IDs, List or a copy of the Prompt afterwards. A caller that is
// not sure does not call Done; then the memory stays the prompt's.
func (p *Prompt) Done() {
	if p.buffer != nil {
		p.buffer.done()
	}
	*p = Prompt{}
}

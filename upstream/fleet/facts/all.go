package facts

import (
	"context"
	"log/slog"
	"time"

	"carryover/upstream"
)

// All is what is known of one incarnation of an engine. Each fact has an owner, which is safe for concurrent use. Of an
// incarnation whose id is not known nothing is recorded except what needs no comparison (Silence, PrefixCache).
type All struct {
	// Capability, Keys, Prompts and Lessons ask the engine; the others learn from answers to turns.
	Capability  Capability
	Keys        Keys
	Prompts     Prompts
	Lessons     Lessons
	Parity      Parity
	PlugIn      PlugIn
	Silence     Silence
	PrefixCache PrefixCache
}

// Engine is the engine of an incarnation, as its facts see it.
type Engine interface {
	// Instance returns how the engine is configured now.
	Instance() *upstream.Instance
	// Models returns the models that it is known to serve.
	Models() []Model
}

// Shared is what the facts of all incarnations of a fleet have in common. Its fields are set before it is used.
type Shared struct {
	Client   *upstream.Client
	AskLimit time.Duration // bounds the tokenising of a short prompt
	Logger   *slog.Logger
	Now      func() time.Time

	renderer *renderer // nil if prefill engines render
	buffers  promptBuffers
}

// Render makes a server render the prompts for all incarnations, in place of the engines.
func (s *Shared) Render(at *upstream.Instance) { s.renderer = &renderer{at: at} }

// New returns what is known of a new incarnation: nothing. known says whether its id is known.
func New(shared *Shared, engine Engine, known bool) *All {
	a := &asker{shared: shared, engine: engine, known: known}
	all := &All{
		Capability:  Capability{asker: a, probes: newQuestions(idsLimit, idsRetry, shared.Now)},
		Keys:        Keys{asker: a},
		Prompts:     Prompts{asker: a},
		Parity:      newParity(known),
		PlugIn:      PlugIn{known: known},
		PrefixCache: PrefixCache{now: shared.Now},
	}
	all.Lessons = Lessons{asker: a, capability: &all.Capability, parity: &all.Parity, prompts: &all.Prompts}
	return all
}

// asker asks the engine of one incarnation.
type asker struct {
	shared *Shared
	engine Engine
	known  bool // whether the incarnation's id is known
}

func (a *asker) instance() *upstream.Instance { return a.engine.Instance() }

// post sends a small JSON body to the engine.
func (a *asker) post(ctx context.Context, path string, body []byte, authorization string) (status int, answer []byte, err error) {
	return a.shared.Client.Post(ctx, a.instance(), path, body, authorization, nil)
}

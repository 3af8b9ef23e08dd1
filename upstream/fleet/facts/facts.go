// Package facts has what is known of one incarnation of an engine: one type for each fact, with its own lock and the
// few methods that learn it and tell it. [All] has the facts of an incarnation; what outlasts it ([Speed], [AnswerIDs]) belongs to
// its engine. Package fleet keeps them, the steps of turns teach and ask them.
//
// It promises that
//
//   - of an incarnation whose id is not known nothing is learnt that would need a comparison (facts.go);
//   - what is found out by asking an engine does not depend on one client's departure, credential or model, and of each
//     question at most one is under way (probe.go, render.go);
//   - a render endpoint that an incarnation lacks is asked for once, and one that the fleet's render server lacks every
//     30 seconds (render.go);
//   - the memory of a prompt's ids serves another prompt only after the turn that asked for them has given it back
//     (prompts.go);
//   - a common shape of requests is known before a turn has it, by lessons that are bounded in number and size, pin
//     nothing, and go to an engine only while it is idle (lessons.go; fleet/rounds.go says when);
//   - what requests teach is bounded (probe.go, package account), and takes the place of no lesson (parity.go);
//   - several samples of a metric, as of several engines or processes, must agree, or the incarnation and the block size
//     are not known (metrics.go);
//   - a text that breaks off, or has more than its bound, is an error and tells nothing; values that make no sense are
//     zero, and sums don't overflow (metrics.go, modellist.go);
//   - nothing waits for an engine while it holds a lock.
package facts

import (
	"context"
	"crypto/sha256"
	"log/slog"
	"strconv"
	"sync"
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

	fleetRenderer *renderer // nil if prefill engines render
	buffers       sync.Pool // of *promptBuffer
}

// Render makes a server render the prompts for all incarnations, in place of the engines.
func (s *Shared) Render(at *upstream.Instance) { s.fleetRenderer = &renderer{at: at} }

// New returns what is known of a new incarnation: nothing. known says whether its id is known.
func New(shared *Shared, engine Engine, known bool) *All {
	a := &asker{shared: shared, engine: engine, known: known}
	all := &All{
		Capability:  Capability{asker: a, limit: idsLimit, open: map[[sha256.Size]byte]*question{}},
		Keys:        Keys{asker: a},
		Prompts:     Prompts{asker: a},
		Parity:      Parity{known: known, taught: newFindings(), seen: newFindings()},
		PlugIn:      PlugIn{known: known},
		PrefixCache: PrefixCache{now: shared.Now},
	}
	all.Lessons = Lessons{asker: a, capability: &all.Capability, parity: &all.Parity, prompts: &all.Prompts, given: map[string]int{}}
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

// Finding is what is known about a yes-or-no question.
type Finding int

// The findings.
const (
	Unknown Finding = iota
	Yes
	No
)

// Wait returns when a question is over or ctx ends.
func Wait(ctx context.Context, over <-chan struct{}) {
	select {
	case <-over:
	case <-ctx.Done():
	}
}

// digest returns the key of a question with these parts.
func digest(parts ...string) (key [sha256.Size]byte) {
	var room [512]byte // enough for nearly all models and shapes
	text := room[:0]
	for _, part := range parts {
		text = append(strconv.AppendInt(text, int64(len(part)), 10), ':')
		text = append(text, part...)
	}
	return sha256.Sum256(text)
}

// maxLearnt bounds each map of what one incarnation has shown about clients' requests. A deployment sees dozens of
// shapes and models.
const maxLearnt = 1024

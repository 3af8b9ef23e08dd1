// Package facts has what is known of one incarnation of an engine: one type per fact, with its own lock. [All] has the facts of an
// incarnation; [Speed] and [AnswerIDs] outlive it and belong to its engine. Package fleet keeps them; the steps of turns teach and
// ask them. It promises:
//
//   - An unknown incarnation learns nothing that needs a comparison (facts.go).
//   - A question to an engine does not depend on one client's departure, credential or model. At most one of each is under way
//     (probe.go, render.go).
//   - A render endpoint that an incarnation lacks is asked for once; one that the fleet's render server lacks, every 30 seconds
//     (render.go).
//   - The memory of a prompt's ids serves another prompt only after the turn has given it back (prompts.go).
//   - Lessons teach common shapes of requests before a turn has them. They are bounded in number and size, pin nothing, and go
//     only to idle engines (lessons.go; fleet/rounds.go says when).
//   - What requests teach is bounded (probe.go, package account), and displaces no lesson (parity.go).
//   - Several samples of a metric, as of several engines or processes, must agree, or incarnation and block size are unknown
//     (metrics.go).
//   - A text that is cut off or too long is an error. Meaningless values are zero, and sums don't overflow (metrics.go,
//     modellist.go).
//   - Nothing waits for an engine while it holds a lock.
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

// All has the facts of one incarnation. Each is safe for concurrent use. An unknown incarnation records only what needs
// no comparison (Silence, PrefixCache).
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
	Instance() *upstream.Instance
	Models() []Model
}

// Shared is common to the facts of all incarnations of a fleet. Its fields are set before it is used.
type Shared struct {
	Client   *upstream.Client
	AskLimit time.Duration // for /tokenize of a short prompt
	Logger   *slog.Logger
	Now      func() time.Time

	fleetRenderer *renderer // nil if prefill engines render
	buffers       sync.Pool // of *promptBuffer
}

// Render makes one server render the prompts for all incarnations.
func (s *Shared) Render(at *upstream.Instance) { s.fleetRenderer = &renderer{at: at} }

// New returns the facts of a new incarnation. known says whether it has an id.
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

type asker struct {
	shared *Shared
	engine Engine
	known  bool // the incarnation has an id
}

func (a *asker) instance() *upstream.Instance { return a.engine.Instance() }

func (a *asker) post(ctx context.Context, path string, body []byte, authorization string) (status int, answer []byte, err error) {
	return a.shared.Client.Post(ctx, a.instance(), path, body, authorization, nil)
}

// Finding answers a yes-or-no question.
type Finding int

// The findings.
const (
	Unknown Finding = iota
	Yes
	No
)

// Wait returns when over is closed or ctx ends.
func Wait(ctx context.Context, over <-chan struct{}) {
	select {
	case <-over:
	case <-ctx.Done():
	}
}

func digest(parts ...string) (key [sha256.Size]byte) {
	var room [512]byte // enough for nearly all models and shapes
	text := room[:0]
	for _, part := range parts {
		text = append(strconv.AppendInt(text, int64(len(part)), 10), ':')
		text = append(text, part...)
	}
	return sha256.Sum256(text)
}

// maxLearnt bounds each map of what clients' requests have shown of an incarnation. A deployment sees dozens of shapes
// and models.
const maxLearnt = 1024

package fleet

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"carryover/upstream"
	"carryover/upstream/fleet/facts"
)

// Lists of models are read at each new incarnation, then every half minute, so that adapters loaded meanwhile appear.
const (
	modelsEvery   = 30 * time.Second
	modelListWait = 2 * time.Second // for one list; vLLM answers from its API server, without queueing behind requests
)

// listing is what is known of an engine's models. A list outlives its incarnation until the next one
// is read, because a restarted engine mostly serves the same models.
type listing struct {
	engine *Engine

	mu          sync.Mutex // guards the rest. Lock order: readings, listing
	known       bool       // the last reading gave a list; else the engine may serve any model
	models      []facts.Model
	incarnation string    // the engine's incarnation at that time, "" if it was not known
	asked       time.Time // when the last reading began, zero if there was none
	under       *reading  // the reading under way, nil if none
}

// follow starts to read the engine's list of models when that is due. It does not wait for the result.
func (l *listing) follow(ctx context.Context) {
	incarnation := l.engine.Last().ID()
	l.mu.Lock()
	due := l.asked.IsZero() || incarnation != "" && incarnation != l.incarnation || upstream.Elapsed(l.asked, l.engine.fleet.now()) >= modelsEvery
	l.mu.Unlock()
	if due {
		l.list(ctx)
	}
}

// list starts to read the engine's list of models, unless a reading is under way, and returns the reading.
func (l *listing) list(ctx context.Context) *reading {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.under == nil {
		l.under, l.asked = &reading{done: make(chan struct{})}, l.engine.fleet.now()
		go l.run(context.WithoutCancel(ctx), l.under) // ends within modelListWait
	}
	return l.under
}

func (l *listing) run(ctx context.Context, r *reading) {
	ctx, cancel := context.WithTimeout(ctx, l.engine.fleet.Catalogue.listWait)
	defer cancel()
	incarnation := l.engine.Last().ID()
	models, err := l.read(ctx)
	set := newModelSet(models)
	if err == nil {
		set = l.engine.fleet.Catalogue.shared(set)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	defer close(r.done)
	l.under = nil
	switch {
	case err == nil:
		l.known, l.models, l.incarnation = true, models, incarnation
		l.engine.seen.models.Store(set)
	case errors.Is(err, facts.ErrModelList):
		l.known, l.models, l.incarnation = false, nil, incarnation
		l.engine.seen.models.Store(nil)
	}
	// No answer: what was known before stays.
}

// of returns the list that was read of the incarnation with that id, nil if there is none. It waits for a reading that is
// under way.
func (l *listing) of(ctx context.Context, incarnation string) []facts.Model {
	l.mu.Lock()
	under := l.under
	l.mu.Unlock()
	if under != nil {
		wait(ctx, under.done)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.known || l.incarnation != incarnation {
		return nil
	}
	return l.models
}

// read fetches the list with our own key. The error is facts.ErrModelList if the engine answers and has no usable
// list, and another if it gave no answer or a temporary refusal.
func (l *listing) read(ctx context.Context) (models []facts.Model, err error) {
	defer func() {
		if recover() != nil { // a defect in reading an answer must not end the process
			models, err = nil, facts.ErrModelList
		}
	}()
	status, list, err := l.engine.fleet.cfg.Client.Fetch(ctx, l.engine.Instance(), "/v1/models", "", facts.MaxModelList)
	switch {
	case errors.Is(err, upstream.ErrAnswerTooLarge):
		return nil, facts.ErrModelList
	case err != nil:
		return nil, fmt.Errorf("read models: %w", err)
	case status == http.StatusOK:
		return facts.ParseModels(list)
	case status == http.StatusTooManyRequests || status >= http.StatusInternalServerError:
		return nil, fmt.Errorf("read models: status %d", status)
	}
	return nil, facts.ErrModelList
}

// all returns the known list of models. It is not to be changed.
func (l *listing) all() []facts.Model {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.models
}

// Models returns the models that the engine serves, nil while no list is known. The list is not to be changed.
func (e *Engine) Models() []facts.Model { return e.models.all() }

// MayServe reports whether the engine serves a model of that name, or has not told which it serves.
func (e *Engine) MayServe(model string) bool {
	models := e.seen.models.Load()
	if models == nil || model == "" {
		return true
	}
	_, serves := models.ids[model]
	return serves
}

package fleet

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"carryover/upstream"
	"carryover/upstream/fleet/facts"
)

// Lists of models are read at each new incarnation, then every half minute, so that adapters loaded meanwhile appear;
// and before a turn is told that no engine serves its model, but at most every five seconds, whatever clients ask for.
const (
	modelsEvery   = 30 * time.Second
	modelsAgain   = 5 * time.Second
	modelsAtOnce  = 16 // lists that a refresh reads at the same time
	refreshLimit  = 5 * time.Second
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
	ctx, cancel := context.WithTimeout(ctx, l.engine.fleet.refreshing.listWait)
	defer cancel()
	incarnation := l.engine.Last().ID()
	models, err := l.read(ctx)
	set := newModelSet(models)
	if err == nil {
		set = l.engine.fleet.shared(set)
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

// shared returns an equal set that another engine has, else set itself.
func (f *Fleet) shared(set *modelSet) *modelSet {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, engines := range f.engines {
		for _, e := range engines {
			if other := e.seen.models.Load(); other != nil && other.digest == set.digest {
				return other
			}
		}
	}
	return set
}

// Models returns the models of the engines that answer, each once, as the first engine that lists it describes it:
// decode engines first, in configured order. Engines without a known list add nothing.
func (f *Fleet) Models() (all []facts.Model) {
	seen := map[string]bool{}
	for _, role := range []upstream.Role{upstream.RoleDecode, upstream.RolePrefill} {
		for _, e := range f.Engines(role) {
			if !e.answers() {
				continue
			}
			for _, model := range e.Models() {
				if !seen[model.ID] {
					seen[model.ID] = true
					all = append(all, model)
				}
			}
		}
	}
	return all
}

// all returns the known list of models. It is not to be changed.
func (l *listing) all() []facts.Model {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.models
}

// Models returns the models that the engine serves, nil while no list is known. The list is not to be changed.
func (e *Engine) Models() []facts.Model { return e.models.all() }

// refreshing is the last refresh of all lists.
type refreshing struct {
	listWait time.Duration // for one list

	mu    sync.Mutex // guards the rest; it is the innermost lock
	begun time.Time
	under *reading // nil if none is under way
}

// RefreshModels reads the lists of all engines that answer, unless a refresh began less than five seconds ago. It
// returns when the refresh is over, after five seconds, or when ctx ends. Callers call it when Pick returns
// upstream.ErrNoModel, before they refuse the turn: an adapter may have been loaded since.
func (f *Fleet) RefreshModels(ctx context.Context) {
	s := &f.refreshing
	s.mu.Lock()
	r, now := s.under, f.now()
	if r == nil && (s.begun.IsZero() || upstream.Elapsed(s.begun, now) >= modelsAgain) {
		r = &reading{done: make(chan struct{})}
		s.under, s.begun = r, now
		go f.refresh(context.WithoutCancel(ctx), r) // ends within refreshLimit
	}
	s.mu.Unlock()
	if r != nil {
		wait(ctx, r.done)
	}
}

func (f *Fleet) refresh(ctx context.Context, r *reading) {
	ctx, cancel := context.WithTimeout(ctx, refreshLimit)
	defer cancel()
	var all []*Engine
	for _, role := range []upstream.Role{upstream.RoleDecode, upstream.RolePrefill} {
		for _, e := range f.Engines(role) {
			if e.answers() {
				all = append(all, e)
			}
		}
	}
	var next atomic.Int64
	var group sync.WaitGroup
	for range min(modelsAtOnce, len(all)) {
		group.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= len(all) {
					return
				}
				wait(ctx, all[i].models.list(ctx).done)
			}
		})
	}
	group.Wait()
	f.refreshing.mu.Lock()
	f.refreshing.under = nil
	f.refreshing.mu.Unlock()
	close(r.done)
}

// MayServe reports whether the engine serves a model of that name, or has not told which it serves.
func (e *Engine) MayServe(model string) bool {
	models := e.seen.models.Load()
	if models == nil || model == "" {
		return true
	}
	_, serves := models.ids[model]
	return serves
}

// Serves reports whether an engine is known to serve a model of that name. It locks no engine.
func (f *Fleet) Serves(model string) bool {
	var same *modelSet
	for _, role := range []upstream.Role{upstream.RoleDecode, upstream.RolePrefill} {
		for _, e := range f.Engines(role) {
			models := e.seen.models.Load()
			if models == nil || models == same { // the same list as the engine before, mostly
				continue
			}
			same = models
			if _, serves := models.ids[model]; serves {
				return true
			}
		}
	}
	return false
}

package fleet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
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
// is read, because a restarted engine mostly serves the same models. The engine's lock guards it.
type listing struct {
	list        []facts.Model // nil if none is known: the engine may serve any model
	incarnation string        // the engine's incarnation at that time, "" if it was not known
	asked       time.Time     // when the last reading began, zero if there was none
	under       chan struct{} // closed when the reading under way is over, nil if there is none
}

// modelSet is the set of model ids of a list. Engines with equal lists share one set, so that a pick looks its model
// up once and not in a thousand lists.
type modelSet map[string]struct{}

// serves reports whether the model is in the set.
func (s *modelSet) serves(model string) bool {
	if s == nil || model == "" {
		return true
	}
	_, serves := (*s)[model]
	return serves
}

// shared returns the set of the models' ids: that of another engine if one has an equal one. Their order does not matter.
func (f *Fleet) shared(models []facts.Model) *modelSet {
	set := modelSet{}
	for _, m := range models {
		set[m.ID] = struct{}{}
	}
	for e := range f.members.Load().all {
		if other := e.served.Load(); other != nil && maps.Equal(*other, set) {
			return other
		}
	}
	return &set
}

// followModels starts to read the engine's list of models when that is due. It does not wait for the result.
func (e *Engine) followModels(ctx context.Context) {
	incarnation := e.Last().ID()
	e.mu.Lock()
	l := &e.models
	due := l.asked.IsZero() || incarnation != "" && incarnation != l.incarnation || upstream.Elapsed(l.asked, e.fleet.now()) >= modelsEvery
	e.mu.Unlock()
	if due {
		e.listModels(ctx)
	}
}

// listModels starts to read the engine's list of models, unless a reading is under way.
func (e *Engine) listModels(ctx context.Context) (over <-chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	l := &e.models
	if l.under == nil {
		l.under, l.asked = make(chan struct{}), e.fleet.now()
		go e.readList(context.WithoutCancel(ctx)) // ends within modelListWait
	}
	return l.under
}

func (e *Engine) readList(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, e.fleet.Catalogue.listWait)
	defer cancel()
	incarnation := e.Last().ID()
	list, err := e.readModels(ctx)
	var set *modelSet
	if err == nil {
		set = e.fleet.shared(list)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	close(e.models.under)
	e.models.under = nil
	if err == nil || errors.Is(err, facts.ErrModelList) { // without an answer, what was known before stays
		e.models.list, e.models.incarnation = list, incarnation
		e.served.Store(set)
	}
}

// readModels fetches the list with our own key. The error is facts.ErrModelList if the engine answers and has no usable
// list, and another if it gave no answer or a temporary refusal.
func (e *Engine) readModels(ctx context.Context) (models []facts.Model, err error) {
	defer func() {
		if recover() != nil { // a defect in reading an answer must not end the process
			models, err = nil, facts.ErrModelList
		}
	}()
	status, list, err := e.fleet.cfg.Client.Fetch(ctx, e.Instance(), "/v1/models", "", facts.MaxModelList)
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

// modelsOf returns the list that was read of the incarnation with that id, nil if there is none. It waits for a reading that is
// under way.
func (e *Engine) modelsOf(ctx context.Context, incarnation string) []facts.Model {
	e.mu.Lock()
	under := e.models.under
	e.mu.Unlock()
	if under != nil {
		wait(ctx, under)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.models.incarnation != incarnation {
		return nil
	}
	return e.models.list
}

// Models returns the models that the engine serves, nil while no list is known. The list is not to be changed.
func (e *Engine) Models() []facts.Model {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.models.list
}

// MayServe reports whether the engine serves a model of that name, or has not told which it serves.
func (e *Engine) MayServe(model string) bool { return e.served.Load().serves(model) }

package fleet

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"carryover/upstream"
	"carryover/upstream/fleet/facts"
)

// Models are listed for each new incarnation, then every half minute, so that adapters loaded meanwhile appear.
const (
	modelsEvery   = 30 * time.Second
	modelListWait = 2 * time.Second // per list; vLLM answers from its API server, without queueing behind requests
)

// listing is the engine's list of models. It outlives its incarnation until the next is read, because a restarted
// engine mostly serves the same models. Engine.mu guards it.
type listing struct {
	list        []facts.Model // nil if unknown: the engine may serve any model
	incarnation string        // at that time, "" if unknown
	asked       time.Time     // when the last reading began, zero if there was none
	under       chan struct{} // closed when the reading under way ends, nil if there is none
}

// modelSet holds the ids of a list. Engines with equal lists share one set, so that a pick looks its model up once and
// not in a thousand lists.
type modelSet map[string]struct{}

func (m *modelSet) serves(model string) bool {
	if m == nil || model == "" {
		return true
	}
	_, serves := (*m)[model]
	return serves
}

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

func (e *Engine) followModels(ctx context.Context) {
	incarnation := e.Last().ID()
	e.mu.Lock()
	l := &e.models
	due := l.asked.IsZero() || incarnation != "" && incarnation != l.incarnation || upstream.Elapsed(l.asked, e.fleet.Now()) >= modelsEvery
	e.mu.Unlock()
	if due {
		e.listModels(ctx)
	}
}

func (e *Engine) listModels(ctx context.Context) (over <-chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	l := &e.models
	if l.under == nil {
		l.under, l.asked = make(chan struct{}), e.fleet.Now()
		go func() { // ends within modelListWait
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.fleet.Catalogue.listWait)
			defer cancel()
			incarnation := e.Last().ID()
			list, told := e.readModels(ctx)
			var set *modelSet
			if list != nil {
				set = e.fleet.shared(list)
			}
			e.mu.Lock()
			defer e.mu.Unlock()
			if told { // without an answer, the last list stays
				l.list, l.incarnation = list, incarnation
				e.served.Store(set)
			}
			close(l.under) // waiters read what was stored without a lock
			l.under = nil
		}()
	}
	return l.under
}

// readModels fetches the list with our own key. told is false if there was no answer or a temporary refusal; the list is nil if the answer is
// unusable.
func (e *Engine) readModels(ctx context.Context) (models []facts.Model, told bool) {
	defer func() {
		if recover() != nil { // a defect in reading an answer must not end the process
			models, told = nil, true
		}
	}()
	status, list, err := e.fleet.cfg.Client.Fetch(ctx, e.Instance(), "/v1/models", "", facts.MaxModelList)
	switch {
	case errors.Is(err, upstream.ErrAnswerTooLarge):
		return nil, true
	case err != nil, status == http.StatusTooManyRequests, status >= http.StatusInternalServerError:
		return nil, false
	case status == http.StatusOK:
		models = facts.ParseModels(list)
	}
	return models, true
}

func (e *Engine) awaitModels(ctx context.Context) []facts.Model {
	e.mu.Lock()
	under := e.models.under
	e.mu.Unlock()
	if under != nil {
		facts.Wait(ctx, under)
	}
	return e.Models()
}

// Models returns the models that the engine serves, nil if unknown. Callers must not change the list.
func (e *Engine) Models() []facts.Model {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.models.list
}

// MayServe reports whether an engine of the role serves the model or has listed none.
func (f *Fleet) MayServe(role upstream.Role, model string) bool {
	return slices.ContainsFunc(f.Engines(role), func(e *Engine) bool { return e.MayServe(model) })
}

// MayServe reports whether the engine serves the model or has listed none.
func (e *Engine) MayServe(model string) bool { return e.served.Load().serves(model) }

const (
	modelsAgain  = 5 * time.Second // between the beginnings of two refreshes, whatever clients ask for
	modelsAtOnce = 16              // lists that a refresh reads at once
	refreshLimit = 5 * time.Second

	triesOfClient = 16 // unlisted models per client within modelsAgain; a turn's model counts once for each role
	triesOfAll    = 8 * triesOfClient
	maxTriedName  = 256
)

type try struct {
	client, model string
	role          upstream.Role
	at            time.Time
	refused       bool
}

// Catalogue knows which models the fleet serves. It is safe for concurrent use.
type Catalogue struct {
	fleet    *Fleet
	listWait time.Duration

	mu    sync.Mutex    // guards the rest; the innermost lock
	begun time.Time     // when the last refresh began
	under chan struct{} // closed when the refresh under way ends, nil if there is none
	tries []try         // within the last modelsAgain
}

// Models returns each model of the engines that answer once, as the first list describes it: decode engines first, in
// configured order.
func (c *Catalogue) Models() (all []facts.Model) {
	seen := map[string]bool{}
	for e := range c.fleet.members.Load().all {
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
	return all
}

// Serves reports whether an engine is known to serve the model. It locks no engine.
func (c *Catalogue) Serves(model string) bool {
	var same *modelSet
	for e := range c.fleet.members.Load().all {
		if models := e.served.Load(); models != same { // mostly the list of the engine before
			if same = models; models != nil && models.serves(model) {
				return true
			}
		}
	}
	return false
}

// Refresh reads the lists of all engines that answer, unless a refresh began less than five seconds ago. It returns when
// that is over, after five seconds, or when ctx ends. Callers use it after upstream.ErrNoModel, before they refuse the
// turn: an adapter may have been loaded since.
func (c *Catalogue) Refresh(ctx context.Context) {
	c.mu.Lock()
	if now := c.fleet.Now(); c.under == nil && (c.begun.IsZero() || upstream.Elapsed(c.begun, now) >= modelsAgain) {
		c.under, c.begun = make(chan struct{}), now
		go c.refresh(context.WithoutCancel(ctx)) // ends within refreshLimit
	}
	under := c.under
	c.mu.Unlock()
	if under != nil {
		facts.Wait(ctx, under)
	}
}

// MayTry reports whether a client's turn may ask an engine for a model that no list shows, because some engines load adapters on the first
// request. It is false for five seconds after a refusal of the model, and for a client that has asked for too many names.
func (c *Catalogue) MayTry(client string, role upstream.Role, model string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	now, own := c.fleet.Now(), 0
	c.tries = slices.DeleteFunc(c.tries, func(t try) bool { return upstream.Elapsed(t.at, now) >= modelsAgain })
	for _, t := range c.tries {
		switch {
		case t.client != client:
		case t.role == role && t.model == model:
			return !t.refused
		default:
			own++
		}
	}
	if own >= triesOfClient || len(c.tries) >= triesOfAll || len(model) > maxTriedName {
		return false
	}
	c.tries = append(c.tries, try{client: client, model: strings.Clone(model), role: role, at: now})
	return true
}

// Refused records that an engine of the role refused a client's model.
func (c *Catalogue) Refused(client string, role upstream.Role, model string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.tries {
		if t := &c.tries[i]; t.client == client && t.role == role && t.model == model {
			t.refused = true
		}
	}
}

func (c *Catalogue) refresh(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, refreshLimit)
	defer cancel()
	engines := make(chan *Engine)
	var group sync.WaitGroup
	for range modelsAtOnce {
		group.Go(func() {
			for e := range engines {
				if ctx.Err() == nil {
					facts.Wait(ctx, e.listModels(ctx))
				}
			}
		})
	}
	for e := range c.fleet.members.Load().all {
		if e.answers() {
			engines <- e
		}
	}
	close(engines)
	group.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.under)
	c.under = nil
}

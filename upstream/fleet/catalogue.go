package fleet

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"carryover/upstream"
	"carryover/upstream/fleet/facts"
)

const (
	modelsAgain  = 5 * time.Second // between the beginnings of two refreshes, whatever clients ask for
	modelsAtOnce = 16              // lists that a refresh reads at the same time
	refreshLimit = 5 * time.Second

	triesOfClient = 16 // models that no list shows, asked for by one client within modelsAgain; the name of a turn counts once for each role
	triesOfAll    = 8 * triesOfClient
	maxTriedName  = 256
)

// try is a model that no list of the role shows, and that an engine was asked for nevertheless.
type try struct {
	client, model string
	role          upstream.Role
	at            time.Time
	refused       bool
}

// Catalogue is which models the engines of a fleet serve. It is safe for concurrent use.
type Catalogue struct {
	fleet    *Fleet
	listWait time.Duration // for one list

	mu    sync.Mutex    // guards the rest; it is the innermost lock
	begun time.Time     // when the last refresh began
	under chan struct{} // closed when the refresh under way is over, nil if there is none
	tries []try         // of the last modelsAgain
}

// Models returns the models of the engines that answer, each once, as the first engine that lists it describes it:
// decode engines first, in configured order. Engines without a known list add nothing.
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

// Serves reports whether an engine is known to serve a model of that name. It locks no engine.
func (c *Catalogue) Serves(model string) bool {
	var same *modelSet
	for e := range c.fleet.members.Load().all {
		if models := e.served.Load(); models != same { // the same list as the engine before, mostly
			if same = models; models != nil && models.serves(model) {
				return true
			}
		}
	}
	return false
}

// Refresh reads the lists of all engines that answer, unless a refresh began less than five seconds ago. It returns when
// the refresh is over, after five seconds, or when ctx ends. Callers call it when a pick returns upstream.ErrNoModel,
// before they refuse the turn: an adapter may have been loaded since.
func (c *Catalogue) Refresh(ctx context.Context) {
	c.mu.Lock()
	if now := c.fleet.now(); c.under == nil && (c.begun.IsZero() || upstream.Elapsed(c.begun, now) >= modelsAgain) {
		c.under, c.begun = make(chan struct{}), now
		go c.refresh(context.WithoutCancel(ctx)) // ends within refreshLimit
	}
	under := c.under
	c.mu.Unlock()
	if under != nil {
		wait(ctx, under)
	}
}

// MayTry reports whether an engine of the role may be asked for a model that no list of them shows, because engines load some adapters when
// they are first asked for. It is false for five seconds after engines have refused the model, and for a client that asks for too many names.
func (c *Catalogue) MayTry(client string, role upstream.Role, model string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	now, own := c.fleet.now(), 0
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

// Refused notes that an engine of the role has refused a client's request because of its model.
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
					wait(ctx, e.listModels(ctx))
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

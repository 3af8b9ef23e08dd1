package discovery

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"carryover/upstream"
)

// MaxNamed is how many prefill instances Named keeps. Each is probed, so requests that always name new ones must not
// create more than a fleet has.
const MaxNamed = 256

// Named has the prefill instances that requests name by host and port, as llm-d's endpoint picker does in
// x-prefiller-host-port, if a pattern permits them. Create it with NewNamed. It is safe for concurrent use.
//
// It must be the only source of prefill instances, or the first one of Together: its instances are named by their
// addresses, and must keep these names.
type Named struct {
	allow []Pattern
	list  list

	mu   sync.Mutex           // taken before that of the list
	used map[string]time.Time // when an instance of the list was last named
}

// namedIdle is how long an instance stays in the list without being named again.
const namedIdle = 10 * time.Minute

// NewNamed returns a source that is empty at first.
func NewNamed(allow []Pattern) *Named { return &Named{allow: allow, used: map[string]time.Time{}} }

// Admit returns the name of the prefill instance at hostPort, its canonical host:port. A new instance is added, and
// every Watch has called set when Admit returns; if there are too many, the one unused for longest is dropped. A known
// instance costs one map look-up. The error says why the instance is not permitted, and does not repeat the patterns.
func (n *Named) Admit(hostPort string) (name string, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, known := n.used[hostPort]; known {
		n.used[hostPort] = time.Now()
		return hostPort, nil
	}
	e, err := parseEndpoint(hostPort)
	if err != nil {
		return "", fmt.Errorf("prefill instance %.80q: %w", hostPort, err)
	}
	name = e.String()
	if !slices.ContainsFunc(n.allow, func(p Pattern) bool { return p.permits(e) }) {
		return "", fmt.Errorf("prefill instance %q: %w", name, errNotPermitted)
	}
	_, known := n.used[name]
	n.used[name] = time.Now()
	if known { // it was named in another spelling
		return name, nil
	}
	if len(n.used) > MaxNamed {
		delete(n.used, n.unusedForLongest())
	}
	n.publish(name)
	return name, nil
}

var errNotPermitted = errors.New("no pattern permits host and port")

func (n *Named) unusedForLongest() (name string) {
	for candidate, last := range n.used {
		if name == "" || last.Before(n.used[name]) {
			name = candidate
		}
	}
	return name
}

// publish makes the list of the names in use, with added at its end. n.mu is held.
func (n *Named) publish(added ...string) {
	n.list.change(func(all []upstream.Instance) []upstream.Instance {
		all = slices.DeleteFunc(slices.Clone(all), func(i upstream.Instance) bool {
			_, inUse := n.used[i.Name]
			return !inUse
		})
		for _, name := range added {
			all = append(all, upstream.Instance{Name: name, BaseURL: "http://" + name, Role: upstream.RolePrefill})
		}
		return all
	})
}

// Watch sets the list, again after each change, and drops instances that no request has named for namedIdle, until ctx
// ends. It returns nil.
func (n *Named) Watch(ctx context.Context, set func([]upstream.Instance)) error {
	var dropping sync.WaitGroup
	dropping.Go(func() { n.dropUnused(ctx) })
	defer dropping.Wait()
	return n.list.Watch(ctx, set)
}

// dropUnused looks ten times per idle time, so an instance stays at most a tenth longer.
func (n *Named) dropUnused(ctx context.Context) {
	ticker := time.NewTicker(namedIdle / 10)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		n.mu.Lock()
		for name, last := range n.used {
			if time.Since(last) >= namedIdle {
				delete(n.used, name)
			}
		}
		n.publish()
		n.mu.Unlock()
	}
}

var _ upstream.Source = (*Named)(nil)

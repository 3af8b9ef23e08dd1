package discovery

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"carryover/upstream"
)

// Listed is the list from the configuration, which a reload replaces. The zero value is an empty list. It is safe for concurrent
// use.
type Listed struct{ list }

// Replace changes the list. It returns when set of each Watch has been called with the new one.
func (l *Listed) Replace(instances []upstream.Instance) {
	l.change(func([]upstream.Instance) []upstream.Instance { return slices.Clone(instances) })
}

// MaxRegistered bounds a Registry, and so the fleet's probes, if a caller registers in a loop.
const MaxRegistered = 1024

// Add refuses a valid instance for these reasons.
var (
	ErrFull  = fmt.Errorf("%d instances are registered, more are not allowed", MaxRegistered)
	ErrTaken = errors.New("the address is registered under another name")
)

// Registry has the instances that are registered at run time. They are lost when the process ends. The zero value is empty. It is
// safe for concurrent use.
type Registry struct{ list }

// Add registers an instance, by default under the host:port of its address. It replaces an instance of the same role and name: an
// engine that has moved registers anew. When Add returns, set of each Watch has been called, so that the fleet has the instance.
// The error wraps ErrFull or ErrTaken, or says what is wrong with the instance.
func (r *Registry) Add(instance upstream.Instance) error {
	if instance.Role != upstream.RolePrefill && instance.Role != upstream.RoleDecode {
		return fmt.Errorf("%s: want prefill or decode", instance.Role)
	}
	checked, err := upstream.NewInstance(instance.Role, instance.Name, instance.BaseURL)
	if err != nil {
		return err
	}
	instance.Name, instance.BaseURL = checked.Name, checked.BaseURL
	if instance.Weight < 0 || instance.Rank < 0 || !instance.Ranked && instance.Rank != 0 {
		return fmt.Errorf("%s instance %s: weight %d, rank %d: must not be negative", instance.Role, instance.Name, instance.Weight, instance.Rank)
	}
	r.change(func(all []upstream.Instance) []upstream.Instance {
		same := slices.IndexFunc(all, isNamed(instance.Role, instance.Name))
		there := slices.IndexFunc(all, func(other upstream.Instance) bool { return locationOf(other) == locationOf(instance) })
		switch {
		case there >= 0 && there != same:
			err = fmt.Errorf("%s instance %s at %s: %w (%s)", instance.Role, instance.Name, instance.BaseURL, ErrTaken, all[there].Name)
			return all
		case same >= 0:
			all = slices.Clone(all)
			all[same] = instance
			return all
		case len(all) >= MaxRegistered:
			err = fmt.Errorf("%s instance %s: %w", instance.Role, instance.Name, ErrFull)
			return all
		}
		return append(slices.Clip(all), instance)
	})
	return err
}

// Remove ends the registration of an instance and reports whether there was one. When it returns, set of each Watch has been
// called.
func (r *Registry) Remove(role upstream.Role, name string) (found bool) {
	r.change(func(all []upstream.Instance) []upstream.Instance {
		i := slices.IndexFunc(all, isNamed(role, name))
		if found = i >= 0; !found {
			return all
		}
		return slices.Concat(all[:i], all[i+1:])
	})
	return found
}

func isNamed(role upstream.Role, name string) func(upstream.Instance) bool {
	return func(i upstream.Instance) bool { return i.Role == role && i.Name == name }
}

type list struct {
	mu       sync.Mutex // held while set is called, so that watchers see the lists in the order of the changes
	all      []upstream.Instance
	watchers []*func([]upstream.Instance)
}

// Watch calls set with the current list, and then within each change, until ctx ends. It returns nil.
func (l *list) Watch(ctx context.Context, set func([]upstream.Instance)) error {
	l.mu.Lock()
	l.watchers = append(l.watchers, &set)
	set(slices.Clone(l.all))
	l.mu.Unlock()
	<-ctx.Done()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.watchers = slices.DeleteFunc(l.watchers, func(w *func([]upstream.Instance)) bool { return w == &set })
	return nil
}

// change replaces the list by next's result, and calls the watchers unless both are equal. next must not change its argument.
func (l *list) change(next func([]upstream.Instance) []upstream.Instance) {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := next(l.all)
	if slices.Equal(all, l.all) {
		return
	}
	l.all = all
	for _, set := range l.watchers {
		(*set)(slices.Clone(all))
	}
}

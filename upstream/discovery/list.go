package discovery

import (
	"context"
	"slices"
	"sync"

	"carryover/upstream"
)

// list is the list of a source that the program itself changes. The zero value is empty.
type list struct {
	mu       sync.Mutex // held while set is called, so that watchers see the lists in the order of the changes
	all      []upstream.Instance
	watchers []*func([]upstream.Instance)
}

// Watch calls set with the list as it is, and from then on within each change, until ctx ends. It returns nil.
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

// change replaces the list by what next makes of it, and tells the watchers unless both are equal. next must not change its
// argument.
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

package discovery

import (
	"context"
	"slices"

	"carryover/upstream"
)

// Listed is the list from the configuration, which a reload replaces. The zero value is an empty list. It is safe for
// concurrent use.
type Listed struct{ list list }

// Replace changes the list. It returns when set of each Watch has been called with the new one.
func (l *Listed) Replace(instances []upstream.Instance) {
	l.list.change(func([]upstream.Instance) []upstream.Instance { return slices.Clone(instances) })
}

// Watch sets the list, again whenever it is replaced, until ctx ends. It returns nil.
func (l *Listed) Watch(ctx context.Context, set func([]upstream.Instance)) error {
	l.list.watch(ctx, set)
	return nil
}

var _ upstream.Source = (*Listed)(nil)

package discovery

import (
	"slices"

	"carryover/upstream"
)

// Listed is the list from the configuration, which a reload replaces. The zero value is an empty list. It is safe for
// concurrent use.
type Listed struct{ list }

// Replace changes the list. It returns when set of each Watch has been called with the new one.
func (l *Listed) Replace(instances []upstream.Instance) {
	l.change(func([]upstream.Instance) []upstream.Instance { return slices.Clone(instances) })
}

var _ upstream.Source = (*Listed)(nil)

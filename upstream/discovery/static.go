// Package discovery says where instances come from.
package discovery

import (
	"context"

	"carryover/upstream"
)

// Static is the list from the configuration; it never changes.
type Static []upstream.Instance

// Watch sets the list once and waits for ctx to end. It returns nil.
func (s Static) Watch(ctx context.Context, set func([]upstream.Instance)) error {
	set(s)
	<-ctx.Done()
	return nil
}

var _ upstream.Source = Static(nil)

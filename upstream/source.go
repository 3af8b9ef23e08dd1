package upstream

import "context"

// Source tells which instances exist. Watch calls set with the complete list whenever it changes, and returns when ctx
// ends.
type Source interface {
	Watch(ctx context.Context, set func([]Instance)) error
}

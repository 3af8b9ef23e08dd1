// Package storetime bounds the operations of a ticket store.
package storetime

import (
	"context"
	"time"
)

// Limit returns a context for operations of a store, which ends after the limit. It is not cancelled with the client's: a client that
// leaves must not interrupt a take halfway.
func Limit(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), limit)
}

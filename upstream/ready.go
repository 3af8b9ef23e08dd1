package upstream

import "context"

// Arrival is the KV of one attempt on its way to decode.
type Arrival interface {
	// Ready returns nil when the KV has arrived. Otherwise it returns the cause of ctx when ctx ends, or the reason
	// why the KV will not arrive.
	Ready(ctx context.Context) error
	// Close ends the wait for it; one call suffices.
	Close()
}

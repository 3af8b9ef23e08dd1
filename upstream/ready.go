package upstream

import "context"

// Arrival is the KV of one attempt on its way to decode.
type Arrival interface {
	// Ready returns when the KV has arrived, with the cause of ctx when that ends before, or with why it will not arrive.
	Ready(ctx context.Context) error
	// Close forgets it; once is enough.
	Close()
}

package fleet

import "sync"

// habits are what an engine keeps over its restarts, because they are those of its
// machine and of the gateway in front.
type habits struct {
	mu      sync.Mutex // guards the rest; no other lock is taken under it
	paced   bool
	perByte float64 // nanoseconds of prefill per byte of request body
	echoes  bool    // answers have the id of the request
	speed   speed
}

package fleet

import "sync"

// habits are what an engine keeps over its restarts, because they belong to its machine and to the gateway in front of
// it.
// The speed of an engine is measured in three ways, for three decisions:
//   - nsPerByte, the whole time of a prefill leg over the bytes of its body, waiting included: how long a leg that
//     carries a ticket may take. It serves where the body is all that is known (bodyspeed.go).
//   - speed, the time over the tokens of all legs that the engine had meanwhile: how long prefill will take for a
//     further prompt. Picks use it, and count waiting apart, by tokens (speed.go).
//   - legSpeed, a field of Engine, the whole time of a leg over its work, for decode too: whether the engine is
//     slower than its role. An ejection resets it (ejection.go).
type habits struct {
	mu             sync.Mutex // guards the rest; it is the innermost lock
	bodySpeedKnown bool
	nsPerByte      float64 // nanoseconds of prefill per byte of request body
	echoes         bool    // its answers carry the id of the request
	speed          speed
}

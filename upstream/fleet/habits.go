package fleet

import "sync"

// habits are what an engine keeps over its restarts, because they are those of its
// machine and of the gateway in front.
//
// How long prefill takes is measured in three ways, for three decisions:
//   - nsPerByte, the whole time of a leg over the bytes of its body, queues included: how long a leg that carries a ticket may
//     take. It is asked for when the body is all that is known (bodyspeed.go).
//   - speed, the time over the tokens of all legs that the engine had meanwhile: how long a further prompt is expected to take,
//     which picks weigh. Queues are counted apart, by their tokens (speed.go).
//   - legSpeed, of the Engine, the whole time over the work, of decode too: whether the engine is slower than its role. It is
//     forgotten with an ejection (ejection.go).
type habits struct {
	mu             sync.Mutex // guards the rest; no other lock is taken under it
	bodySpeedKnown bool
	nsPerByte      float64 // nanoseconds of prefill per byte of request body
	echoes         bool    // answers have the id of the request
	speed          speed
}

package load

import (
	"time"

	"carryover/cmd/pdbench/engines"
	"carryover/cmd/pdbench/result"
)

// Outcome is the result of one measurement of one contender. Counts cover the time from the end of the warm-up to the end of the measurement.
// A turn counts at its last byte.
type Outcome struct {
	Wall      time.Duration
	Turns     int    // answered completely and correctly
	Errors    int    // refused, broken off, or not as the engine sent it
	Why       string // the first error, also of the warm-up
	Chunks    int    // delivered chunks, also of unfinished turns
	Hits      int    // legs with which a conversation's KV reached prefill, as engines count them, the warm-up included
	HandOvers int    // legs with a hand-over to decode, counted likewise
	Streams   int    // the most that were open at once
	FirstByte result.Samples
	Gaps      result.Samples // between two chunks of one answer, as the client got them
	Faults    engines.Faults

	CPU  time.Duration // user and system time of the contender's processes, 0 for the direct way
	Base int64         // resident bytes before the load
	Peak int64         // most resident bytes during it
	Held int64         // resident bytes while all streams were open
}

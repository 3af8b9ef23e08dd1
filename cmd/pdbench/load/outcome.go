package load

import (
	"time"

	"carryover/cmd/pdbench/engines"
	"carryover/cmd/pdbench/result"
)

// Outcome is what one measurement of one contender has shown. Whatever is counted is counted between the end of the warm-up and
// the end of the measurement; a turn belongs to the moment of its last byte.
type Outcome struct {
	Wall      time.Duration
	Turns     int    // answered in full, and as they should be
	Errors    int    // refused, broken off, or not what the engine has sent
	Why       string // the first of them, of the warm-up too
	Chunks    int    // delivered, those of turns that are not finished included
	Hits      int    // legs with which a conversation's KV reached prefill, as the engines have seen, those of the warm-up too
	HandOvers int    // legs with a hand-over to decode, likewise
	Streams   int    // open at once, at most
	FirstByte result.Samples
	Gaps      result.Samples // between two chunks of one answer, as the client got them
	Faults    engines.Faults

	CPU  time.Duration // user and system time of the contender's processes, 0 for the direct way
	Base int64         // resident bytes before the load
	Peak int64         // most resident bytes during it
	Held int64         // resident bytes while all streams were open
}

// PerStream is how much more resident memory there was for each of so many streams while all of them were open, in bytes.
func (o Outcome) PerStream(streams int) float64 { return float64(o.Held-o.Base) / float64(streams) }

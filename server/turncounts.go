package server

import (
	"sync/atomic"

	"carryover/server/record"
)

// counts holds what turns count.
type counts struct {
	strandedRead, strandedLost atomic.Uint64
	retriesDenied              atomic.Uint64
}

// read returns what was counted until now: hand-overs of clients that had left, and retries that the budget has denied.
func (c *counts) read() (record.Stranded, uint64) {
	return record.Stranded{Read: c.strandedRead.Load(), Lost: c.strandedLost.Load()}, c.retriesDenied.Load()
}

// stranded counts a hand-over; read says that decode has read it.
func (c *counts) stranded(read bool) {
	if read {
		c.strandedRead.Add(1)
	} else {
		c.strandedLost.Add(1)
	}
}

package pins

import (
	"time"

	"carryover/upstream"
	"carryover/upstream/fleet"
)

// How much earlier a ticket ends than decode frees its blocks. Before prefill reads, it has to queue the request and to shake hands with
// decode. If it is told remote_blocks_expiry_time, it declines blocks that are about to expire (vLLM #47021); otherwise no engine does.
const (
	// MarginWithExpiry is the margin for engines that report when blocks expire. A decode instance whose TTL is not longer leaves no
	// ticket.
	MarginWithExpiry    = 30 * time.Second
	marginWithoutExpiry = 60 * time.Second

	// TicketSlack is how much of the margin must be left when a leg that carries a ticket ends, because prefill may go on reading until it
	// notices that the leg was cancelled. It covers the error of a ticket's age (heldBack of package upstream).
	TicketSlack = 5 * time.Second

	// MaxReuseTrial is the longest time for a leg that carries a ticket: it must end before decode may free the blocks and store other KV
	// in them.
	MaxReuseTrial = MarginWithExpiry - TicketSlack
)

// Deadline returns the time until which a ticket may be used that decode certainly held at a moment; ttl is the longest life of a ticket.
// It counts from a moment before decode finished, because decode's own clock runs from the moment at which it finished. It is a time and
// not a duration, so that a delay before the put shortens the ticket's life. expires says that decode reports when blocks expire.
func Deadline(ttl time.Duration, decode *fleet.Engine, freshAsOf time.Time, expires bool) time.Time {
	margin := marginWithoutExpiry
	if expires {
		margin = MarginWithExpiry
	}
	return freshAsOf.Add(min(decode.Instance().KVTTL-margin, ttl))
}

// UntilFreed returns how long a leg may still read a ticket's blocks. A ticket's deadline is earlier than decode's by a margin, which is
// the leg's time.
func UntilFreed(deadline time.Time) time.Duration {
	return MaxReuseTrial - upstream.Elapsed(deadline, time.Now())
}

// inBlocks rounds a number of tokens up to whole blocks of the incarnation's KV cache.
func inBlocks(incarnation *fleet.Incarnation, tokens int) int {
	size := max(1, incarnation.BlockSize())
	return (tokens + size - 1) / size * size
}

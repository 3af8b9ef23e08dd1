package pins

import (
	"time"

	"carryover/upstream"
	"carryover/upstream/fleet"
)

// A ticket ends earlier than decode frees its blocks, by a margin. Before prefill reads, it has to queue the request and to shake hands with decode.
// An engine that knows remote_blocks_expiry_time declines blocks that are about to expire (vLLM #47021); others decline nothing.
const (
	// MarginWithExpiry is the margin for engines that report when blocks expire. A decode instance with a TTL of at most this leaves no ticket.
	MarginWithExpiry    = 30 * time.Second
	marginWithoutExpiry = 60 * time.Second

	// TicketSlack is how much of the margin must be left when a leg with a ticket ends: prefill may go on reading until it notices that the leg was
	// cancelled. It covers the error of a ticket's age (heldBack of package upstream).
	TicketSlack = 5 * time.Second

	// MaxReuseTrial is the time limit of a leg with a ticket. The leg must end before decode may free the blocks and store other KV in them.
	MaxReuseTrial = MarginWithExpiry - TicketSlack
)

// Deadline returns the time until which a ticket may be used. freshAsOf is a moment before decode finished: decode's clock runs from its finish. ttl
// is the longest life of a ticket, and expires says that decode reports when blocks expire. The result is a time and not a duration, so a delay
// before the put shortens the ticket's life.
func Deadline(ttl time.Duration, decode *fleet.Engine, freshAsOf time.Time, expires bool) time.Time {
	margin := marginWithoutExpiry
	if expires {
		margin = MarginWithExpiry
	}
	return freshAsOf.Add(min(decode.Instance().KVTTL-margin, ttl))
}

// UntilFreed returns how long a leg may still read a ticket's blocks: the margin between the ticket's deadline and decode's, less TicketSlack.
func UntilFreed(deadline time.Time) time.Duration {
	return MaxReuseTrial - upstream.Elapsed(deadline, time.Now())
}

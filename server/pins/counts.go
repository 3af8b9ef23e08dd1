package pins

import (
	"slices"
	"time"

	"carryover/server/record"
	"carryover/upstream/fleet"
)

// Pinned returns how many tokens of a decode engine's KV cache are pinned, as far as this replica knows. It counts tickets in the store and on legs,
// blocks that wait for their release, and blocks that only decode's TTL will free. It does not count answers without params.
func (p *Pins) Pinned(decode *fleet.Engine) (tokens int) {
	p.lock()
	defer p.mu.Unlock()
	if h := p.holders[decode.Last()]; h != nil {
		for _, n := range h.tokens {
			tokens += n
		}
	}
	return tokens
}

// Due returns how many pins of a decode engine wait for a release, and their tokens. open tokens may be free: a leg that named them got no answer.
func (p *Pins) Due(decode *fleet.Engine) (pins, tokens, open int) {
	p.lock()
	defer p.mu.Unlock()
	if h := p.holders[decode.Last()]; h != nil {
		for _, n := range h.due {
			pins, tokens = pins+1, tokens+n.tokens
			if n.reader != nil || n.tried {
				open += n.tokens
			}
		}
	}
	return pins, tokens, open
}

// TicketOut is a ticket in the store, as far as this replica knows.
type TicketOut struct {
	Decode   string // the instance that holds its blocks
	Tokens   int    // in whole blocks
	Deadline time.Time
}

// TicketsOut lists the tickets of a conversation that this replica has stored, the oldest first. conversation is its name in the log. It examines all
// pins, which takes some milliseconds if there are many, so only operators' requests may call it.
func (p *Pins) TicketsOut(conversation string) (out []TicketOut) {
	p.lock()
	defer p.mu.Unlock()
	for _, n := range p.pins {
		if (n.state == stored || n.state == late) && n.holder != nil && (n.Conversation == conversation || n.Key.Named(conversation)) {
			out = append(out, TicketOut{Decode: n.holder.incarnation.Engine().Name, Tokens: n.tokens, Deadline: n.deadline})
		}
	}
	slices.SortFunc(out, func(a, b TicketOut) int { return a.Deadline.Compare(b.Deadline) })
	return out
}

// Counts returns the package's part of the program's counts.
func (p *Pins) Counts() record.Counts {
	p.lock()
	defer p.mu.Unlock()
	counts := p.counts
	counts.Waiting = len(p.ready)
	for _, h := range p.holders {
		counts.Tickets += h.stored.Len
	}
	return counts
}

// Budget returns how many tokens of a decode engine's KV cache tickets may pin, 0 if that is unknown or unlimited.
func (p *Pins) Budget(decode *fleet.Engine) int {
	if !p.cfg.Release {
		return 0 // nothing is given up for it
	}
	return int(p.cfg.PinnedShare * float64(decode.KVTokens()))
}

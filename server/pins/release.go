package pins

import (
	"bytes"
	"sync"
	"time"

	"carryover/convcache"
	"carryover/upstream"
	"carryover/upstream/fleet"
	"carryover/upstream/fleet/unused"
)

// Releases has decode free the blocks of tickets that no turn will use, because they were removed from the store or were never stored. Each
// ticket is released once.
type Releases struct {
	cfg         *Config
	deps        *Deps
	blocks      *blocks
	counts      *counts
	generations *generations
	refused     sync.Map // decode's name -> the incarnation for which the log last said that prefill refuses its ticket
}

func newReleases(cfg *Config, deps *Deps, blocks *blocks, counts *counts) *Releases {
	return &Releases{cfg: cfg, deps: deps, blocks: blocks, counts: counts, generations: newGenerations()}
}

// Leftover says where the blocks of an answer without a ticket are.
type Leftover struct {
	Decode    *fleet.Incarnation
	Model     string
	Began     time.Time // when the leg of the answer was sent
	FreshAsOf time.Time // decode certainly held the blocks at this moment
}

// read returns what the connector reads in a ticket's params. A ticket that was made in this process has the result with it; one from
// another replica is read here, once, and has it from then on.
func (r *Releases) read(ticket *convcache.Ticket) (*upstream.TicketParams, error) {
	if known, ok := ticket.Reading.(*upstream.TicketParams); ok {
		return known, nil
	}
	parsed, err := r.deps.Connector.ParseTicket(ticket.Params, 0)
	if err != nil {
		return nil, err
	}
	ticket.Params, ticket.Reading = parsed.Params, Reading(parsed)
	return &parsed, nil
}

// Outdated reports whether the engine that holds a ticket's blocks has registered its memory again since.
func (r *Releases) Outdated(ticket *convcache.Ticket) bool {
	parsed, err := r.read(ticket)
	return err == nil && r.generations.outdated(ticket.Decode, parsed)
}

// Reading returns the part of a reading that a ticket keeps.
func Reading(parsed upstream.TicketParams) *upstream.TicketParams {
	parsed.Params, parsed.OutputIDs = nil, nil // the ticket has these, and hashes of those in its chain
	return &parsed
}

// Spent notes that a ticket was sent. Anything that names its blocks from now on is wrong.
func (r *Releases) Spent(ticket convcache.Ticket) {
	if parsed, err := r.read(&ticket); err == nil {
		r.blocks.unuse(ticket.Decode, *parsed)
	}
}

// Unuse gives up a ticket that was removed from the store or was never stored. Its blocks will be released.
func (r *Releases) Unuse(ticket convcache.Ticket, model string) { r.give(ticket, model, nil) }

// give gives up a ticket. If reader is not nil, it may still be reading the blocks.
func (r *Releases) give(ticket convcache.Ticket, model string, reader *fleet.Incarnation) {
	parsed, err := r.read(&ticket)
	if err != nil {
		return // an older or a foreign version has made it, and no engine would understand it either
	}
	holder := r.deps.Fleet.Holder(ticket.Decode, ticket.Incarnation) // nil after a restart, which has freed the blocks
	u := unused.Ticket{
		Params: ticket.Params, Reading: parsed.Reading, Model: model, FreshAsOf: ticket.FreshAsOf, Deadline: ticket.Deadline, Tokens: ticket.Tokens,
	}
	if reader != nil {
		u.Reader = reader
	}
	r.giveUp(ticket.Decode, holder, *parsed, u)
}

// Unanswered gives up a ticket that was sent to an incarnation of prefill, which has not answered. Decode may have freed the blocks, or prefill
// may still be reading them. The release that follows makes it certain; for blocks that are free already it changes nothing (measured on
// vLLM 0.32).
func (r *Releases) Unanswered(ticket convcache.Ticket, model string, reader *fleet.Incarnation) {
	r.give(ticket, model, reader)
}

// UnuseParams gives up the blocks that decode's params name, if they name any.
func (r *Releases) UnuseParams(params []byte, left Leftover) {
	if params == nil {
		return
	}
	if parsed, err := r.deps.Connector.ParseTicket(params, 0); err == nil {
		r.UnuseParsed(parsed, left)
	}
}

// NoteGeneration notes the generation of decode's memory in params of an answer to a leg that was sent at a time, so that what was held before
// a sleep is known to be gone.
func (r *Releases) NoteGeneration(decode *fleet.Incarnation, parsed *upstream.TicketParams, sent time.Time) {
	r.generations.outdated(decode.Engine().Name, parsed)
	decode.Pins.Registered(parsed.Generation, sent)
}

// UnuseParsed gives up the blocks of an answer, unless a ticket names them.
func (r *Releases) UnuseParsed(parsed upstream.TicketParams, left Leftover) {
	decode := left.Decode.Engine()
	r.NoteGeneration(left.Decode, &parsed, left.Began)
	if !r.blocks.fresh(decode.Name, parsed) {
		return
	}
	r.giveUp(decode.Name, left.Decode, parsed, unused.Ticket{
		Params: bytes.Clone(parsed.Params), Reading: parsed.Reading, Model: left.Model, FreshAsOf: left.FreshAsOf,
		Deadline: Deadline(r.cfg.TTL, decode, left.FreshAsOf, parsed.Expires), Tokens: parsed.Tokens,
	})
}

// giveUp queues the release of blocks that no ticket names any more. Blocks are released once.
func (r *Releases) giveUp(decode string, holder *fleet.Incarnation, parsed upstream.TicketParams, u unused.Ticket) {
	if !r.blocks.unuse(decode, parsed) {
		r.cfg.Logger.Error("two tickets name the same blocks; one is dropped", "decode", decode)
		return
	}
	if holder == nil {
		return
	}
	u.Tokens = InBlocks(holder, u.Tokens)
	if !r.cfg.Release {
		holder.Pins.AddExpiring(u.Tokens, u.FreshAsOf)
		return
	}
	holder.Pins.Leave(u)
}

package pins

import (
	"bytes"
	"context"
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
	states      *states
	counts      *counts
	generations *generations
	refused     sync.Map // decode's name -> the incarnation for which the log last said that prefill refuses its ticket
}

func newReleases(cfg *Config, deps *Deps, states *states, counts *counts) *Releases {
	return &Releases{cfg: cfg, deps: deps, states: states, counts: counts, generations: newGenerations()}
}

// Leftover says where the blocks of an answer without a ticket are.
type Leftover struct {
	Decode    *fleet.Incarnation
	Model     string
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
	ticket.Params, ticket.Reading = parsed.Params, ReadingOf(parsed)
	return &parsed, nil
}

// Outdated reports whether the engine that holds a ticket's blocks has registered its memory again since.
func (r *Releases) Outdated(ticket *convcache.Ticket) bool {
	parsed, err := r.read(ticket)
	return err == nil && r.generations.outdated(ticket.Decode.Instance, parsed)
}

// ReadingOf returns the part of a reading that a ticket keeps.
func ReadingOf(parsed upstream.TicketParams) *upstream.TicketParams {
	parsed.Params, parsed.OutputIDs = nil, nil // the ticket has these, and hashes of those in its chain
	return &parsed
}

// become changes the state of a ticket's blocks, if the ticket can be read.
func (r *Releases) become(ticket *convcache.Ticket, next State) {
	if parsed, err := r.read(ticket); err == nil {
		r.states.move(r.states.name(ticket.Decode.Instance, parsed), next)
	}
}

// take takes a ticket or a note out of the store. A ticket whose blocks another one has named is dropped: its outcome is Consumed.
func (r *Releases) take(ctx context.Context, key convcache.Key, id convcache.TicketID) (convcache.Ticket, convcache.Outcome) {
	ticket, outcome := r.deps.Store.Take(ctx, key, id)
	if outcome != convcache.Taken || ticket.HandedBack() {
		return ticket, outcome
	}
	parsed, err := r.read(&ticket)
	if err == nil && !r.states.try(r.states.name(ticket.Decode.Instance, parsed), Claimed) {
		r.cfg.Logger.Error("two tickets name the same blocks; one is dropped", "decode", ticket.Decode.Instance)
		return convcache.Ticket{}, convcache.Consumed
	}
	return ticket, outcome
}

// spent notes that prefill has read a ticket's blocks. Anything that names them from now on is wrong.
func (r *Releases) spent(ticket convcache.Ticket) { r.become(&ticket, Freed) }

// Unuse gives up a ticket that was removed from the store or was never stored. Its blocks will be released.
func (r *Releases) Unuse(ticket convcache.Ticket, model string) { r.give(ticket, model, nil) }

// give gives up a ticket. If reader is not nil, the ticket was sent to that incarnation of prefill, which has not answered: decode may have
// freed the blocks, or prefill may still be reading them. The release that follows makes it certain; for blocks that are free already it
// changes nothing (measured on vLLM 0.32).
func (r *Releases) give(ticket convcache.Ticket, model string, reader *fleet.Incarnation) {
	parsed, err := r.read(&ticket)
	if err != nil {
		return // an older or a foreign version has made it, and no engine would understand it either
	}
	holder := r.deps.Fleet.Holders.Find(ticket.Decode.Instance, ticket.Decode.Incarnation) // nil after a restart, which has freed the blocks
	u := unused.Ticket{
		Params: ticket.Params, Reading: parsed.Reading, Model: model, FreshAsOf: ticket.FreshAsOf, Deadline: ticket.Deadline, Tokens: ticket.Tokens,
	}
	if reader != nil {
		u.Reader = reader
	}
	r.giveUp(ticket.Decode.Instance, holder, *parsed, u)
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

// NoteGeneration notes the generation of decode's memory in params of an answer, so that what was held before a sleep is known to be gone.
func (r *Releases) NoteGeneration(decode *fleet.Incarnation, parsed *upstream.TicketParams) {
	r.generations.outdated(decode.Engine().Name, parsed)
}

// UnuseParsed gives up the blocks of an answer, unless a ticket names them.
func (r *Releases) UnuseParsed(parsed upstream.TicketParams, left Leftover) {
	decode := left.Decode.Engine()
	r.NoteGeneration(left.Decode, &parsed)
	if !r.states.try(r.states.name(decode.Name, &parsed), Named) {
		return
	}
	r.giveUp(decode.Name, left.Decode, parsed, unused.Ticket{
		Params: bytes.Clone(parsed.Params), Reading: parsed.Reading, Model: left.Model, FreshAsOf: left.FreshAsOf,
		Deadline: Deadline(r.cfg.TTL, decode, left.FreshAsOf, parsed.Expires), Tokens: parsed.Tokens,
	})
}

// giveUp queues the release of blocks that no ticket names any more. Blocks are released once.
func (r *Releases) giveUp(decode string, holder *fleet.Incarnation, parsed upstream.TicketParams, u unused.Ticket) {
	name := r.states.name(decode, &parsed)
	if !r.states.try(name, ReleaseQueued) {
		r.cfg.Logger.Error("two tickets name the same blocks; one is dropped", "decode", decode)
		return
	}
	if holder == nil {
		r.states.move(name, Void)
		return
	}
	u.Tokens = inBlocks(holder, u.Tokens)
	if !r.cfg.Release {
		r.states.move(name, Expired)
		holder.Pins.AddExpiring(u.Tokens, u.FreshAsOf)
		return
	}
	u.Owner = queued{r.states, name}
	holder.Pins.Leave(u)
}

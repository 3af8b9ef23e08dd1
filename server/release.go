package server

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"carryover/convcache"
	"carryover/sse/rawjson"
	"carryover/upstream"
	"carryover/upstream/fleet"
)

// releaser has decode free the blocks of tickets that no turn will use, because they were removed from the store or were never stored. Each
// ticket is released once.
type releaser struct {
	cfg        *Config
	deps       *Deps
	background *background
	blocks     *blocks
	counts     *counts

	generations *generations
	refused     sync.Map // decode's name -> the incarnation for which the log last said that prefill refuses its ticket
}

// leftover says where the blocks of an answer without a ticket are.
type leftover struct {
	decode    *fleet.Incarnation
	model     string
	began     time.Time // when the leg of the answer was sent
	freshAsOf time.Time
}

// read returns what the connector reads in a ticket's params. A ticket that was made in this process has the result with it; one from
// another replica is read here, once, and has it from then on.
func (r *releaser) read(ticket *convcache.Ticket) (*upstream.TicketParams, error) {
	if known, ok := ticket.Reading.(*upstream.TicketParams); ok {
		return known, nil
	}
	parsed, err := r.deps.Connector.ParseTicket(ticket.Params, 0)
	if err != nil {
		return nil, err
	}
	ticket.Params, ticket.Reading = parsed.Params, ticketReading(parsed)
	return &parsed, nil
}

// outdated reports whether the engine that holds a ticket's blocks has registered its memory again since.
func (r *releaser) outdated(ticket *convcache.Ticket) bool {
	parsed, err := r.read(ticket)
	return err == nil && r.generations.outdated(ticket.Decode, parsed)
}

// ticketReading returns the part of a reading that a ticket keeps.
func ticketReading(parsed upstream.TicketParams) *upstream.TicketParams {
	parsed.Params, parsed.OutputIDs = nil, nil // the ticket has these, and hashes of those in its chain
	return &parsed
}

// spent notes that a ticket was sent. Anything that names its blocks from now on is wrong.
func (r *releaser) spent(ticket convcache.Ticket) {
	if parsed, err := r.read(&ticket); err == nil {
		r.blocks.unuse(ticket.Decode, *parsed)
	}
}

// unuse gives up a ticket that was removed from the store or was never stored. Its blocks will be released.
func (r *releaser) unuse(ticket convcache.Ticket, model string) { r.give(ticket, model, nil) }

// give gives up a ticket. If reader is not nil, it may still be reading the blocks.
func (r *releaser) give(ticket convcache.Ticket, model string, reader *fleet.Incarnation) {
	parsed, err := r.read(&ticket)
	if err != nil {
		return // an older or a foreign version has made it, and no engine would understand it either
	}
	holder := r.deps.Fleet.Holder(ticket.Decode, ticket.Incarnation) // nil after a restart, which has freed the blocks
	u := fleet.Unused{
		Params: ticket.Params, Reading: parsed.Reading, Model: model, FreshAsOf: ticket.FreshAsOf, Deadline: ticket.Deadline, Tokens: ticket.Tokens,
	}
	u.Reader = reader
	r.giveUp(ticket.Decode, holder, *parsed, u)
}

// unanswered gives up a ticket that was sent to an incarnation of prefill, which has not answered. Decode may have freed the blocks, or prefill
// may still be reading them. The release that follows makes it certain; for blocks that are free already it changes nothing (measured on
// vLLM 0.32).
func (r *releaser) unanswered(ticket convcache.Ticket, model string, reader *fleet.Incarnation) {
	r.give(ticket, model, reader)
}

// unuseParams gives up the blocks that decode's params name, if they name any.
func (r *releaser) unuseParams(params []byte, left leftover) {
	if params == nil {
		return
	}
	if parsed, err := r.deps.Connector.ParseTicket(params, 0); err == nil {
		r.unuseParsed(parsed, left)
	}
}

// noteGeneration notes the generation of decode's memory in params of an answer to a leg that was sent at a time, so that what was held before
// a sleep is known to be gone.
func (r *releaser) noteGeneration(decode *fleet.Incarnation, parsed *upstream.TicketParams, sent time.Time) {
	r.generations.outdated(decode.Engine().Name, parsed)
	decode.RegisteredMemory(parsed.Generation, sent)
}

// unuseParsed gives up the blocks of an answer, unless a ticket names them.
func (r *releaser) unuseParsed(parsed upstream.TicketParams, left leftover) {
	decode := left.decode.Engine()
	r.noteGeneration(left.decode, &parsed, left.began)
	if !r.blocks.fresh(decode.Name, parsed) {
		return
	}
	r.giveUp(decode.Name, left.decode, parsed, fleet.Unused{
		Params: bytes.Clone(parsed.Params), Reading: parsed.Reading, Model: left.model, FreshAsOf: left.freshAsOf,
		Deadline: deadline(r.cfg, decode, left.freshAsOf, parsed.Expires), Tokens: parsed.Tokens,
	})
}

// giveUp queues the release of blocks that no ticket names any more. Blocks are released once.
func (r *releaser) giveUp(decode string, holder *fleet.Incarnation, parsed upstream.TicketParams, u fleet.Unused) {
	if !r.blocks.unuse(decode, parsed) {
		r.cfg.Logger.Error("two tickets name the same blocks; one is dropped", "decode", decode)
		return
	}
	if holder == nil {
		return
	}
	u.Tokens = inBlocks(holder, u.Tokens)
	if !r.cfg.Release {
		holder.AddExpiringPin(u.Tokens, u.FreshAsOf)
		return
	}
	holder.Leave(u)
}

// piggyback is the release of an unused ticket, on a prefill leg that carries no ticket of its own. Prefill reads none of its blocks and tells
// decode to free them (measured on vLLM 0.32: within a second, at no cost to the request).
type piggyback struct {
	unused    fleet.Unused
	holder    *fleet.Incarnation
	pairState *fleet.PairState
}

// piggyback takes an unused ticket whose release a leg to prefill may carry, nil if there is none. It does not ask engines for their
// incarnations.
func (r *releaser) piggyback(prefill *fleet.Incarnation) *piggyback {
	for _, holder := range r.deps.Fleet.Waiting() {
		pairState := prefill.Engine().Last().PairWith(holder)
		if u, ok := pairState.TakeUnused(false); ok {
			return &piggyback{u, holder, pairState}
		}
	}
	return nil
}

// offer returns the offer from which the connector makes a leg.
func (r *piggyback) offer() upstream.TicketOffer {
	return upstream.TicketOffer{Ticket: r.unused.Params, Reading: r.unused.Reading, Holder: r.holder.Engine().Instance(), Release: true}
}

// failed decides what follows for an unused ticket whose leg failed. If nothing was sent, the ticket waits for another leg. Otherwise only a
// leg of our own may carry it again, because the release may be what made the engine fail or refuse the client's request. requeued says
// that the engine's scheduler has not seen the release.
func (r *piggyback) failed(leg *upstream.LegError) (requeued bool) {
	switch {
	case !leg.Sent, leg.Paused():
		r.holder.Leave(r.unused)
		return true
	case leg.Kind == upstream.Status && leg.Status < http.StatusInternalServerError:
		// The engine refused the request before it was scheduled, most likely because of what the client sent. If the release were the
		// reason, every turn that carries it would fail.
		r.unused.Refused = true
		r.holder.Leave(r.unused)
		return true
	case leg.Kind != upstream.Gone:
		r.pairState.ReleaseFailed(false)
	}
	r.open()
	return false
}

// open queues an unused ticket again whose leg may or may not have reached decode. A second leg makes it certain, and does no harm if the
// blocks are free (measured on vLLM 0.32). If the second leg fails too, the blocks stay pinned until decode's TTL ends.
func (r *piggyback) open() {
	if r.unused.Tried {
		r.arrived(false)
		return
	}
	r.unused.Tried, r.unused.Refused = true, true
	r.holder.Leave(r.unused)
}

// arrived ends the ticket's transfer in the count of pinned tokens. freed says that decode has freed the blocks.
func (r *piggyback) arrived(freed bool) {
	r.holder.EndTransfer(r.unused.Tokens, r.unused.FreshAsOf, freed)
}

// workEvery is how often the releaser looks for unused tickets that wait.
const workEvery = time.Second

// workOff sends legs of our own for unused tickets whose release no turn has carried.
func (r *releaser) workOff(ctx context.Context) {
	for _, decode := range r.deps.Fleet.Due(r.cfg.ReleaseBacklog) {
		r.background.run("release", decode.Engine().Name, func() {
			defer decode.Done()
			for ctx.Err() == nil && r.releaseOne(ctx, decode.Engine()) {
			}
		})
	}
}

// releaseOne releases one ticket by a prefill leg that is dropped at its first event, and reports whether to go on with the next.
func (r *releaser) releaseOne(ctx context.Context, decode *fleet.Engine) bool {
	for _, prefill := range r.deps.Fleet.Engines(upstream.RolePrefill) {
		if prefill.Quarantined() || prefill.Pauses() {
			continue
		}
		holder := decode.Current(ctx)
		pairState := prefill.Current(ctx).PairWith(holder)
		u, ok := pairState.TakeUnused(true)
		if !ok {
			continue
		}
		unused := &piggyback{u, holder, pairState}
		leg, err := r.deps.Connector.Release(unused.offer(), u.Model)
		if err != nil {
			unused.arrived(false)
			r.counts.own.failed.Add(1)
			return true // its params are malformed; those of the next may not be
		}
		limited, cancel := context.WithTimeoutCause(ctx, r.cfg.ReuseTrialTimeout, upstream.ErrReuseTimeout)
		run := r.deps.Legs.HandBack
		if leg.Whole {
			run = r.deps.Legs.Prefill
		}
		_, err = run(limited, upstream.Leg{Instance: prefill.Instance(), API: leg.API, Body: rawjson.Pieces{leg.Body}, RequestID: upstream.NewID()})
		cancel()
		blame(prefill, err, true)
		var failed *upstream.LegError
		switch {
		case err == nil:
			unused.arrived(true)
			r.counts.own.sent.Add(1)
		case errors.As(err, &failed) && (!failed.Sent || failed.Paused()):
			holder.Leave(u)
			r.counts.own.requeued.Add(1)
		default:
			unused.open()
			r.counts.own.failed.Add(1)
			r.cfg.Logger.Warn("release failed; this pair releases nothing for a while", "prefill", prefill.Name, "decode", decode.Name, "error", err)
			pairState.ReleaseFailed(true)
		}
		return err == nil
	}
	return false
}

// workOff is one round of releases in the background.
func (s *turns) workOff(ctx context.Context) {
	s.tickets.retireBranches(ctx)
	s.releaser.workOff(ctx)
}

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

// releaser has decode free the blocks of tickets that no turn will use: they were removed from the store, or never got
// there. Each is released once.
type releaser struct {
	cfg        *Config
	deps       *Deps
	background *background
	blocks     *blocks
	counts     *counts

	generations *generations
	refused     sync.Map // by the name of decode, its start of which it was last said that prefill refuses a ticket
}

// leftover says where an answer's blocks are.
type leftover struct {
	decode    *fleet.Incarnation
	model     string
	freshAsOf time.Time
}

// read returns what the connector reads of a ticket's params. A ticket that was made in this process brings it; one that comes from
// another replica is read here, once, and brings it from then on.
func (r *releaser) read(ticket *convcache.Ticket) (*upstream.Kept, error) {
	if known, ok := ticket.Reading.(*upstream.Kept); ok {
		return known, nil
	}
	kept, err := r.deps.Connector.Keep(ticket.Params, 0)
	if err != nil {
		return nil, err
	}
	ticket.Params, ticket.Reading = kept.Params, keptReading(kept)
	return &kept, nil
}

// outdated reports whether the engine that holds a ticket's blocks has registered its memory again since.
func (r *releaser) outdated(ticket *convcache.Ticket) bool {
	kept, err := r.read(ticket)
	return err == nil && r.generations.outdated(ticket.Decode, ticket.Incarnation, kept)
}

// keptReading is what a ticket brings of what was read of its params.
func keptReading(kept upstream.Kept) *upstream.Kept {
	kept.Params, kept.OutputIDs = nil, nil // the ticket has these, and hashes of those in its chain
	return &kept
}

// spent notes that a ticket was sent: whatever names its blocks from now on is not to be believed.
func (r *releaser) spent(ticket convcache.Ticket) {
	if kept, err := r.read(&ticket); err == nil {
		r.blocks.unuse(ticket.Decode, *kept)
	}
}

// unuse gives up a ticket that was removed from the store, or never got there.
func (r *releaser) unuse(ticket convcache.Ticket, model string) { r.give(ticket, model, nil) }

// give gives up a ticket. reader may read its blocks yet, if it is not nil.
func (r *releaser) give(ticket convcache.Ticket, model string, reader *fleet.Incarnation) {
	kept, err := r.read(&ticket)
	if err != nil {
		return // of an older or a foreign version; no engine would understand it either
	}
	holder := r.deps.Fleet.Holder(ticket.Decode, ticket.Incarnation) // blocks of another start are gone
	u := fleet.Unused{
		Params: ticket.Params, Reading: kept.Reading, Model: model, FreshAsOf: ticket.FreshAsOf, Deadline: ticket.Deadline, Tokens: ticket.Tokens,
	}
	u.Reader = reader
	r.giveUp(ticket.Decode, holder, *kept, u)
}

// unanswered gives up a ticket that was sent to a start of prefill and was not answered: decode may have freed its blocks, or not, or
// prefill reads them yet. The release that follows settles it: of blocks that are freed it changes nothing (measured on vLLM 0.32).
func (r *releaser) unanswered(ticket convcache.Ticket, model string, reader *fleet.Incarnation) {
	r.give(ticket, model, reader)
}

// unuseParams gives up decode's answer, if it is one that holds blocks.
func (r *releaser) unuseParams(params []byte, left leftover) {
	if params == nil {
		return
	}
	if kept, err := r.deps.Connector.Keep(params, 0); err == nil {
		r.unuseKept(kept, left)
	}
}

// unuseKept gives up the blocks of decode's answer, unless there is a ticket for them.
func (r *releaser) unuseKept(kept upstream.Kept, left leftover) {
	decode := left.decode.Engine()
	r.generations.outdated(decode.Name, left.decode.ID(), &kept) // to be known of the tickets that there are
	if !r.blocks.fresh(decode.Name, kept) {
		return
	}
	r.giveUp(decode.Name, left.decode, kept, fleet.Unused{
		Params: bytes.Clone(kept.Params), Reading: kept.Reading, Model: left.model, FreshAsOf: left.freshAsOf,
		Deadline: deadline(r.cfg, decode, left.freshAsOf, kept.Expires), Tokens: kept.Tokens,
	})
}

// giveUp has blocks released that no ticket names any more, once.
func (r *releaser) giveUp(decode string, holder *fleet.Incarnation, kept upstream.Kept, u fleet.Unused) {
	if !r.blocks.unuse(decode, kept) {
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

// piggyback is an unused ticket on a prefill leg that has none of its own. Prefill
// reads nothing of it and tells decode to free the blocks (measured on vLLM 0.32:
// within a second, at no cost to the request).
type piggyback struct {
	unused fleet.Unused
	holder *fleet.Incarnation
	link   *fleet.PairState
}

// piggyback takes an unused ticket that a leg to prefill may carry, nil if there is none. Starts are those that were last read.
func (r *releaser) piggyback(prefill *fleet.Incarnation) *piggyback {
	for _, holder := range r.deps.Fleet.Waiting() {
		link := prefill.Engine().Last().PairWith(holder)
		if u, ok := link.TakeUnused(false); ok {
			return &piggyback{u, holder, link}
		}
	}
	return nil
}

// offer is what the connector makes a leg of.
func (r *piggyback) offer() upstream.TicketOffer {
	return upstream.TicketOffer{Ticket: r.unused.Params, Reading: r.unused.Reading, Holder: r.holder.Engine().Instance(), Release: true}
}

// failed deals with an unused ticket whose leg failed. Unsent it waits for a next leg. Else only a leg of our own may carry it again: it
// may be what the engine fails by, or has refused the client's request for. Kept says that nothing of it has been seen by the engine's
// scheduler.
func (r *piggyback) failed(leg *upstream.LegError) (requeued bool) {
	switch {
	case !leg.Sent, leg.Paused():
		r.holder.Leave(r.unused)
		return true
	case leg.Kind == upstream.Status && leg.Status < http.StatusInternalServerError:
		// The engine refused the request before it was scheduled, most likely for what the
		// client sent. Were it for the release, that would fail every turn that carries it.
		r.unused.Refused = true
		r.holder.Leave(r.unused)
		return true
	case leg.Kind != upstream.Gone:
		r.link.ReleaseFailed(false)
	}
	r.open()
	return false
}

// open deals with an unused ticket whose leg has ended so that decode may have been told, or not: another leg makes that certain, and
// does no harm where the blocks are free (measured on vLLM 0.32). What two legs have not settled lasts.
func (r *piggyback) open() {
	if r.unused.Tried {
		r.arrived(false)
		return
	}
	r.unused.Tried, r.unused.Refused = true, true
	r.holder.Leave(r.unused)
}

// arrived ends the way of an unused ticket; freed says that decode was told.
func (r *piggyback) arrived(freed bool) {
	r.holder.EndTransfer(r.unused.Tokens, r.unused.FreshAsOf, freed)
}

// workEvery is how often the unused tickets are looked through.
const workEvery = time.Second

// workOff releases by legs of our own what no turn has carried.
func (r *releaser) workOff(ctx context.Context) {
	for _, decode := range r.deps.Fleet.Due(r.cfg.ReleaseBacklog) {
		r.background.run("release", decode.Engine().Name, func() {
			defer decode.Done()
			for ctx.Err() == nil && r.releaseOne(ctx, decode.Engine()) {
			}
		})
	}
}

// releaseOne releases one ticket by a prefill leg that is dropped at its first event, and reports whether it is worth going on.
func (r *releaser) releaseOne(ctx context.Context, decode *fleet.Engine) bool {
	for _, prefill := range r.deps.Fleet.Engines(upstream.RolePrefill) {
		if prefill.Quarantined() || prefill.Pauses() {
			continue
		}
		holder := decode.Current(ctx)
		link := prefill.Current(ctx).PairWith(holder)
		u, ok := link.TakeUnused(true)
		if !ok {
			continue
		}
		unused := &piggyback{u, holder, link}
		leg, err := r.deps.Connector.Release(unused.offer(), u.Model)
		if err != nil {
			unused.arrived(false)
			r.counts.own.failed.Add(1)
			return true // a malformed one; the next may be better
		}
		limited, cancel := context.WithTimeoutCause(ctx, r.cfg.ReuseTrialTimeout, upstream.ErrReuseTimeout)
		run := r.deps.Legs.HandBack
		if leg.Whole {
			run = r.deps.Legs.Prefill
		}
		_, err = run(limited, upstream.Leg{Instance: prefill.Instance(), API: leg.API, Body: rawjson.Pieces{leg.Body}, RequestID: newID()})
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
			link.ReleaseFailed(true)
		}
		return err == nil
	}
	return false
}

// workOff is a round of what has decode free blocks beside the turns.
func (s *turns) workOff(ctx context.Context) {
	s.tickets.retireBranches(ctx)
	s.releaser.workOff(ctx)
}

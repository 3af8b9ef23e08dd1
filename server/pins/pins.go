package pins

import (
	"bytes"
	"context"
	"time"

	"carryover/convcache"
	"carryover/server/continuation"
	"carryover/server/record"
	"carryover/server/storetime"
	"carryover/upstream"
)

// Pins owns the blocks that decode keeps for tickets of this process. It is safe for concurrent use.
type Pins struct {
	Ledger    *Ledger
	Releases  *Releases
	HandBacks *HandBacks
	// Continuations has to be told of answers and of turns, so that the choices for tickets can be learnt.
	Continuations *continuation.Learner

	cfg        *Config
	deps       *Deps
	states     *states
	late       lateReleases
	budget     *budget
	evacuation *evacuation
	counts     *counts
}

// New returns pins that know of no ticket. Tasks says what has to run while the program serves.
func New(cfg Config, deps Deps) *Pins {
	p := &Pins{cfg: &cfg, deps: &deps, states: newStates(cfg.TTL, cfg.Logger), counts: &counts{}}
	p.Ledger = newLedger(deps.Fleet.Holders, cfg.PinnedShare, p.states)
	p.Releases = newReleases(p.cfg, p.deps, p.states, p.counts)
	p.Continuations = continuation.New(cfg.TTL)
	p.HandBacks = newHandBacks(p.cfg, p.deps, p.Ledger, p.Releases, p.counts, p.Put)
	p.HandBacks.learner, p.HandBacks.late = p.Continuations, &p.late
	p.budget = &budget{cfg: p.cfg, deps: p.deps, ledger: p.Ledger, releases: p.Releases, handBacks: p.HandBacks}
	p.evacuation = newEvacuation(p.cfg, p.deps, p.Ledger, p.Releases, p.HandBacks)
	return p
}

// Fresh notes that the blocks of an answer have a ticket from now on. It reports false if they had one before: the
// second ticket must not be used.
func (p *Pins) Fresh(decode string, parsed upstream.TicketParams) bool {
	return p.states.try(p.states.name(decode, &parsed), Named)
}

// Put stores a ticket or a note for the rest of its life. Tickets that it displaces are handed back or released, and the ticket itself is
// released if the store does not take it.
func (p *Pins) Put(ctx context.Context, key convcache.Key, ticket convcache.Ticket, model string) convcache.Outcome {
	if !ticket.HandedBack() {
		p.Releases.become(&ticket, Stored) // before another may take it
	}
	displaced, outcome := p.deps.Store.Put(ctx, key, ticket, time.Until(ticket.Deadline))
	if outcome == convcache.Stored || outcome == convcache.Unavailable {
		p.Ledger.put(key, &ticket, model)
	}
	for i := range displaced {
		p.displaced(&displaced[i], &ticket, model)
	}
	if outcome != convcache.Stored && outcome != convcache.Unavailable && !ticket.HandedBack() { // that may have been stored after all
		ticket.Params = bytes.Clone(ticket.Params) // they are a part of the answer, which would be kept with them
		p.Releases.Unuse(ticket, model)
	}
	return outcome
}

// PutAlias lets the tickets of a conversation that are stored at home be found under a second key.
func (p *Pins) PutAlias(ctx context.Context, account string, key, home convcache.Key, model string) {
	alias := convcache.Alias(account, home, time.Now())
	displaced, _ := p.deps.Store.Put(ctx, key, alias, convcache.NoteTTL)
	for i := range displaced {
		p.displaced(&displaced[i], &alias, model)
	}
}

// displaced hands back or releases a ticket that a new one has replaced. If the new one contains the old one, prefill has just computed all
// that the old one covers, so that there is nothing to hand back.
func (p *Pins) displaced(old, by *convcache.Ticket, model string) {
	handedBack := !old.HandedBack() && old.Chain.Relation(by.Chain) != convcache.Contained && p.HandBacks.displaced(old)
	p.Gone(old.ID, convcache.Taken)
	if !handedBack && !old.HandedBack() {
		p.Releases.Unuse(*old, model)
	}
}

// Gone records that a ticket is no longer in the store, as the outcome of a take has shown.
func (p *Pins) Gone(id convcache.TicketID, outcome convcache.Outcome) {
	p.HandBacks.queues.left(id)
	p.Ledger.gone(id, outcome)
}

// Take takes a ticket or a note out of the store. At most one caller ever gets it. If the store returns a
// ticket whose blocks another ticket has named, the outcome is Consumed. Hold must follow.
func (p *Pins) Take(ctx context.Context, key convcache.Key, id convcache.TicketID) (convcache.Ticket, convcache.Outcome) {
	ticket, outcome := p.Releases.take(ctx, key, id)
	if outcome != convcache.Unavailable && outcome != convcache.Taken {
		p.Gone(id, outcome)
	}
	return ticket, outcome
}

// GiveUp takes a ticket or a note that no turn may use out of the store, if it is still there, and has the blocks of a ticket released. The
// caller bounds ctx.
func (p *Pins) GiveUp(ctx context.Context, key convcache.Key, id convcache.TicketID, model string) {
	ticket, outcome := p.Releases.take(ctx, key, id)
	p.Gone(id, outcome)
	if outcome == convcache.Taken && !ticket.HandedBack() {
		p.Releases.Unuse(ticket, model)
	}
}

// GiveUpOlder gives up the tickets of other epochs than this one, and has their blocks released.
func (p *Pins) GiveUpOlder(ctx context.Context, epoch int64) {
	p.HandBacks.queues.giveUpOlder(epoch)
	for _, d := range p.Ledger.older(epoch) {
		if ctx.Err() != nil {
			return
		}
		bounded, cancel := storetime.Limit(ctx, p.cfg.StoreTimeout)
		p.GiveUp(bounded, d.key, d.id, d.model)
		cancel()
	}
}

// WhyGone returns why a conversation has no ticket that a turn could find, "" if nothing is known: its ticket is handed back now, or was
// given up, and no other was stored since.
func (p *Pins) WhyGone(key convcache.Key) record.Reason {
	if p.HandBacks.UnderWay(key) {
		return record.ReasonHandingBack
	}
	return p.Ledger.why(key)
}

// Task is work that has to be done again and again while the program serves.
type Task struct {
	Name  string
	Every time.Duration
	Early <-chan struct{} // a value calls for a round at once; it may be nil
	Round func(context.Context)
}

// Tasks lists the tasks; only one goroutine may run each.
func (p *Pins) Tasks() []Task {
	all := []Task{{Name: "pinned budget", Every: budgetEvery, Early: p.Ledger.over, Round: p.budget.enforce}}
	if p.HandBacks.on() {
		all = append(all, Task{Name: "hand-back", Every: handBackEvery, Early: p.HandBacks.queues.wake, Round: p.HandBacks.round})
	}
	if p.cfg.Release { // without it only turns may free blocks
		all = append(all,
			Task{Name: "release", Every: workEvery, Round: p.release},
			Task{Name: "evacuation", Every: evacuateEvery, Round: p.evacuation.round})
	}
	return all
}

// release is one round of releases in the background.
func (p *Pins) release(ctx context.Context) {
	p.releaseLate(ctx, time.Now())
	p.Releases.workOff(ctx)
}

package pins

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"carryover/convcache"
	"carryover/server/record"
	"carryover/upstream"
	"carryover/upstream/fleet"
)

// maxPins bounds the tickets that a Ledger knows: 25 MB. A store in memory keeps as many by default. The budget can't release a ticket that
// the ledger does not know.
const maxPins = 100_000

// Ledger knows which tickets of this replica are in the store, and how much of each decode instance's KV cache they pin. It may be wrong
// about a ticket that another replica has taken, until that ticket's deadline; the store decides.
type Ledger struct {
	holders *fleet.Holders
	states  *states
	share   float64       // share of a KV cache that tickets may pin, see ReleaseConfig.PinnedShare
	over    chan struct{} // signals that tickets pin more on some incarnation than its last round foresaw; buffers one signal

	mu     sync.Mutex // guards the rest
	pins   map[convcache.TicketID]*pin
	pinned map[*fleet.Incarnation]*pinned // incarnations of decode, each until another has replaced it
	gaveUp recent
}

func newLedger(holders *fleet.Holders, share float64, states *states) *Ledger {
	return &Ledger{
		holders: holders, states: states, share: share, over: make(chan struct{}, 1),
		pins: map[convcache.TicketID]*pin{}, pinned: map[*fleet.Incarnation]*pinned{},
	}
}

// put records a ticket that is, or may be, in the store from now on.
func (l *Ledger) put(key convcache.Key, t *convcache.Ticket, model string) {
	name := uint64(0)
	if parsed, ok := t.Reading.(*upstream.TicketParams); ok {
		name = l.states.name(t.Decode.Instance, parsed)
	}
	incarnation := l.holders.Find(t.Decode.Instance, t.Decode.Incarnation)
	if incarnation == nil {
		l.states.unstore(name, Void) // its blocks are gone
		return
	}
	most := l.most(incarnation.Engine().KVTokens())
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gaveUp.forget(key)
	l.remove(l.pins[t.ID])
	of := l.of(incarnation)
	if len(l.pins) >= maxPins {
		if of.accounts.Len() == 0 {
			return
		}
		l.remove(of.accounts.Most().Oldest().Value)
	}
	p := &pin{key: key, id: t.ID, model: model, tokens: inBlocks(incarnation, t.Tokens), freshAsOf: t.FreshAsOf, deadline: t.Deadline, of: of, epoch: t.Epoch, name: name}
	l.pins[p.id] = p
	p.place = of.accounts.Add(t.Account, int64(p.tokens), p)
	of.tokens += p.tokens
	if most > 0 && of.tokens > cmp.Or(of.wake, most) {
		select {
		case l.over <- struct{}{}:
		default: // the budget will be checked already
		}
	}
}

// gone records that a ticket is no longer in the store, as the outcome of a take has shown. If nobody got the ticket, its blocks stay
// pinned until decode's TTL ends. It returns what was known of it.
func (l *Ledger) gone(id convcache.TicketID, outcome convcache.Outcome) (was pin) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.pins[id]
	if p == nil {
		return was
	}
	l.lost(p, outcome)
	l.remove(p)
	return *p
}

// resume reports whether a ticket that was gone is in the store again, where it is what it was.
func (l *Ledger) resume(was *pin) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.pins[was.id]
	if p != nil {
		p.shown, p.release = was.shown, was.release
	}
	return p != nil
}

// lost records what has become of a ticket that was in the store, as the outcome of a take has shown: another replica has it, or nobody, and
// its blocks stay pinned until decode's TTL ends. It changes nothing for a ticket that was taken.
func (l *Ledger) lost(p *pin, outcome convcache.Outcome) {
	switch outcome {
	case convcache.Taken:
	case convcache.Consumed:
		l.states.unstore(p.name, Elsewhere)
	default:
		l.states.unstore(p.name, Expired)
		p.of.incarnation.Pins.AddExpiring(p.tokens, p.freshAsOf)
	}
}

// remove removes a pin, if it is not nil. The caller holds l.mu.
func (l *Ledger) remove(p *pin) {
	if p == nil {
		return
	}
	delete(l.pins, p.id)
	p.of.accounts.Remove(p.place)
	p.of.tokens -= p.tokens
}

// all lists the pins of each decode instance. It also drops tickets that have expired, and
// incarnations that another one has replaced.
func (l *Ledger) all(now time.Time) (all []*pinned) {
	l.mu.Lock()
	defer l.mu.Unlock()
	current := map[*fleet.Incarnation]bool{}
	for _, engine := range l.holders.All() {
		incarnation := engine.Last()
		if !incarnation.Known() {
			continue
		}
		current[incarnation] = true
		all = append(all, l.of(incarnation))
	}
	over := map[*pinned]bool{}
	for incarnation, of := range l.pinned {
		if !current[incarnation] && incarnation.Over() {
			over[of] = true
			delete(l.pinned, incarnation)
		}
	}
	for _, p := range l.pins {
		next := Expired
		switch {
		case over[p.of]:
			next = Void
		case upstream.Elapsed(p.deadline, now) < 0:
			continue
		}
		l.states.unstore(p.name, next)
		p.of.incarnation.Pins.AddExpiring(p.tokens, p.freshAsOf) // the ticket expires before decode's TTL, so its blocks stay pinned for a while
		l.remove(p)
	}
	return all
}

// of returns the pins on an incarnation. The caller holds l.mu.
func (l *Ledger) of(incarnation *fleet.Incarnation) *pinned {
	of := l.pinned[incarnation]
	if of == nil {
		of = &pinned{incarnation: incarnation}
		l.pinned[incarnation] = of
	}
	return of
}

// next removes a ticket of an incarnation from the ledger, if its tickets pin more than most tokens: the oldest of the account that pins most.
// It counts as on a leg, until HandBacks.takeOut says what became of it.
func (l *Ledger) next(of *pinned, most int) (pin, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if of.tokens <= most || of.accounts.Len() == 0 {
		return pin{}, false
	}
	p := of.accounts.Most().Oldest().Value
	l.remove(p)
	of.incarnation.Pins.BeginTransfer(p.tokens)
	return *p, true
}

// givenUp records why a conversation's ticket was given up.
func (l *Ledger) givenUp(key convcache.Key, why record.Reason) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gaveUp.add(key, why)
}

// why returns why a ticket of the conversation was given up, "" if none was, or if another ticket was stored since.
func (l *Ledger) why(key convcache.Key) record.Reason {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.gaveUp.why(key)
}

// wakes notes how many tokens tickets may pin on an incarnation without another round of the budget.
func (l *Ledger) wakes(of *pinned, beyond int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	of.wake = beyond
}

// tokens returns how many tokens of an incarnation's KV cache this replica's stored tickets pin.
func (l *Ledger) tokens(incarnation *fleet.Incarnation) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if of := l.pinned[incarnation]; of != nil {
		return of.tokens
	}
	return 0
}

// Pinned returns how many tokens of a decode engine's KV cache are pinned, as far as this replica knows: by tickets in the store and on
// legs, by blocks that wait for their release, and by blocks that only decode's TTL will free. Answers for which the engine sends no params
// are not counted.
func (l *Ledger) Pinned(decode *fleet.Engine) int {
	stored := l.tokens(decode.Last()) // first: what leaves the store meanwhile then counts twice rather than not at all
	live := decode.Live()
	return stored + live.Pins.Waiting + live.Pins.Besides
}

// older lists the tickets in the store that are of other epochs.
func (l *Ledger) older(epoch int64) (all []pin) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.pins {
		if p.epoch != epoch {
			all = append(all, *p)
		}
	}
	return all
}

// releases notes when a ticket will be released if no turn takes it.
func (l *Ledger) releases(id convcache.TicketID, due time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p := l.pins[id]; p != nil && p.release.IsZero() {
		p.release = due
	}
}

// show notes under which name operators see the conversation of a ticket.
func (l *Ledger) show(id convcache.TicketID, conversation string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p := l.pins[id]; p != nil {
		p.shown = conversation
	}
}

// has reports whether a ticket is in the store, as far as this replica knows.
func (l *Ledger) has(id convcache.TicketID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.pins[id] != nil
}

// TicketOut is a ticket that is in the store, as far as this replica knows.
type TicketOut struct {
	Decode   string // the instance that holds its blocks
	Tokens   int    // in whole blocks
	Deadline time.Time
}

// TicketsOut lists the tickets of a conversation that this replica has stored, the oldest first. The conversation is named as in the log. It
// examines all pins, which takes some milliseconds if the ledger is full, so that only operators' requests call it.
func (l *Ledger) TicketsOut(conversation string) (out []TicketOut) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range l.pins {
		if (p.shown == conversation || p.key.Named(conversation)) && time.Now().Before(p.deadline) {
			out = append(out, TicketOut{Decode: p.of.incarnation.Engine().Name, Tokens: p.tokens, Deadline: p.deadline})
		}
	}
	slices.SortFunc(out, func(a, b TicketOut) int { return a.Deadline.Compare(b.Deadline) })
	return out
}

// Tickets returns how many of the tickets that this replica has made are in the store, as far as it knows.
func (l *Ledger) Tickets() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.pins)
}

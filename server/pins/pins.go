package pins

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"slices"
	"sync"
	"time"

	"carryover/account"
	"carryover/convcache"
	"carryover/server/continuation"
	"carryover/server/proof"
	"carryover/server/record"
	"carryover/upstream"
	"carryover/upstream/fleet"
)

// Pins owns the blocks that decode keeps for tickets of this process. It is safe for concurrent use.
type Pins struct {
	// Continuations learns from answers and turns, which callers report to it, how long tickets should wait.
	Continuations *continuation.Learner

	cfg    *Config
	deps   *Deps
	arena  *proof.Arena  // memory for the ids of tickets, nil if nothing is handed back
	wake   chan struct{} // starts a round of the runner; buffers one
	over   chan struct{} // starts a round of the budget; buffers one
	strict bool          // a defect panics; for tests

	mu       sync.Mutex // guards the rest. Lock order: Pins, Fleet
	pins     map[convcache.TicketID]*pin
	soonest  account.Heap[*pin]
	holders  map[*fleet.Incarnation]*holder
	late     []*pin                   // pins in state late
	ready    []*pin                   // stored pins whose hand-back is due
	retained account.Pool[*pin]       // stored pins with ids, weighed by the number of ids
	underWay []*underWay              // running hand-backs
	gaveUp   map[convcache.Key]string // why tickets of conversations were given up; cleared at maxGaveUp
	// spent has the blocks that decode has freed since a time, and spentBefore the generation before. Without pointers they cost no garbage collection:
	// as pins they took a seventh more CPU for each turn of a benchmark.
	spent, spentBefore map[convcache.TicketID]struct{}
	since              time.Time
	highest            map[memory]int // see Registered
	swept              int64          // the epoch whose beginning pass has seen
	counts             record.Counts

	warned sync.Map // for each prefill engine the incarnation that the log has warned about: it keeps nothing
}

const (
	// maxPins bounds the pins: 30 MB. A store in memory keeps as many tickets by default. The budget can't release a ticket that has no pin.
	maxPins = 100_000
	// maxDue is how many pins of an incarnation may wait for their release. Decode's TTL frees the blocks of all others.
	maxDue = 1024
	// maxGaveUp bounds gaveUp: 2 MB.
	maxGaveUp = 1 << 15
)

// New returns Pins without any ticket. Begin starts their tasks.
func New(cfg Config, deps Deps) *Pins {
	p := &Pins{
		Continuations: continuation.New(cfg.TTL), cfg: &cfg, deps: &deps,
		wake: make(chan struct{}, 1), over: make(chan struct{}, 1), pins: map[convcache.TicketID]*pin{}, holders: map[*fleet.Incarnation]*holder{}, gaveUp: map[convcache.Key]string{},
		highest: map[memory]int{},
	}
	if cfg.HandBack != HandBackOff && cfg.HandBack != "" && deps.Connector.Traits().HandsBack {
		p.arena = proof.NewArena(cfg.HandBackMemory)
	}
	return p
}

func (p *Pins) now() time.Time { return p.deps.Fleet.Now() }

// lock locks p.mu, and does what is due.
func (p *Pins) lock() {
	p.mu.Lock()
	p.pass(p.now())
}

// Arena returns the memory for the ids of tickets, nil if nothing is handed back.
func (p *Pins) Arena() *proof.Arena { return p.arena }

// Name returns the id of an answer's ticket, made from decode's name for the answer's blocks. So no two tickets name the same blocks.
func Name(decode string, parsed *upstream.TicketParams) (id convcache.TicketID) {
	sum := sha256.Sum256([]byte(decode + "\x00" + parsed.EngineID + "\x00" + parsed.RequestID + "\x00"))
	return convcache.TicketID(sum[:len(id)])
}

// Received reads decode's final params: the ticket of an answer with the name of its blocks and the end of its life, and everything that the params
// say. Decode certainly held the blocks at freshAsOf. With upstream.ErrMisplaced no turn can use the blocks, but they can be released.
func (p *Pins) Received(params []byte, holder *fleet.Incarnation, freshAsOf time.Time) (t convcache.Ticket, parsed upstream.TicketParams, err error) {
	decode := holder.Engine()
	parsed, err = p.deps.Connector.ParseTicket(params, holder.BlockSize())
	if err == nil || errors.Is(err, upstream.ErrMisplaced) {
		p.Registered(decode.Name, &parsed)
	}
	return convcache.Ticket{
		Branch: convcache.Branch{
			ID: Name(decode.Name, &parsed), Decode: HolderOf(holder), Tokens: parsed.Tokens,
			FreshAsOf: freshAsOf, Deadline: Deadline(p.cfg.TTL, decode, freshAsOf, parsed.Expires),
		},
		Params: parsed.Params, Reading: readingOf(parsed), EngineID: parsed.EngineID,
	}, parsed, err
}

// HolderOf returns an incarnation's name in tickets and notes.
func HolderOf(incarnation *fleet.Incarnation) convcache.Holder {
	return convcache.Holder{Instance: incarnation.Engine().Name, Incarnation: incarnation.ID()}
}

// readingOf returns the part of parsed that a ticket keeps beside its params.
func readingOf(parsed upstream.TicketParams) *upstream.TicketParams {
	parsed.Params, parsed.OutputIDs = nil, nil // the ticket has the params, and its chain has hashes of the ids
	return &parsed
}

// read returns what the connector reads in a ticket's params. Only a ticket of another replica has to be parsed, once.
func (p *Pins) read(ticket *convcache.Ticket) (parsed upstream.TicketParams, err error) {
	if known, ok := ticket.Reading.(*upstream.TicketParams); ok {
		return *known, nil
	}
	if parsed, err = p.deps.Connector.ParseTicket(ticket.Params, 0); err == nil {
		ticket.Params, ticket.Reading = parsed.Params, readingOf(parsed)
	}
	return parsed, err
}

// claim moves the pin of a ticket that has left the store to claimed. It returns nil if another taker has, or had, the blocks: the ticket must not be
// used. The caller holds p.mu.
func (p *Pins) claim(key convcache.Key, t *convcache.Ticket, model string) *pin {
	n := p.pins[t.ID]
	if p.isSpent(t.ID) || n != nil && (!slices.Contains(follow[n.state], claimed) || !n.since.IsZero()) {
		p.cfg.Logger.Error("two tickets name the same blocks; one is dropped", "decode", t.Decode.Instance)
		return nil
	}
	if n == nil {
		n = p.add(&pin{id: t.ID, Answer: Answer{Key: key, Account: t.Account}, holder: p.holder(p.deps.Fleet.Holders.Find(t.Decode.Instance, t.Decode.Incarnation))})
		if h := n.holder; h != nil {
			size := max(1, h.incarnation.BlockSize())
			n.tokens = (t.Tokens + size - 1) / size * size
		}
	}
	n.Model, n.freshAsOf, n.deadline, n.epoch = model, t.FreshAsOf, t.Deadline, t.Epoch
	p.move(n, claimed)
	return n
}

// add adds a pin, and drops another one if there are maxPins. The caller holds p.mu.
func (p *Pins) add(n *pin) *pin {
	if len(p.pins) >= maxPins && len(p.soonest) > 0 {
		first := p.soonest[0]
		if h := first.holder; h != nil && h.stored.Len > 0 {
			first = h.stored.Most().Oldest().Value
		}
		p.move(first, void)
	}
	n.at = -1
	p.pins[n.id] = n
	return n
}

// Answered makes a pin for the ticket of an answer, before Put or Unuse. It decides how long the ticket waits for its turn and what happens then. If
// that is an immediate release, the caller does not put the ticket, but releases it. ok is false if another ticket names, or named, the same blocks:
// then this one must not be used.
func (p *Pins) Answered(a Answer, tenant string, kind continuation.Kind, ticket *convcache.Ticket) (choice continuation.Choice, ok bool) {
	takes := p.takes(&a, ticket)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.knows(ticket.ID) {
		return choice, false
	}
	n := p.claim(a.Key, ticket, a.Model)
	choice = p.choose(&a, tenant, kind, ticket, takes)
	if takes && n.state == claimed && choice.End == continuation.HandBack {
		n.ids = a.IDs.Retained(ticket.Tokens) // if they fit into memory
	}
	if n.ids == nil && a.Conversation == "" {
		choice.End = continuation.Release
	}
	if n.ids != nil || choice.End == continuation.Release {
		n.until = p.now().Add(choice.Wait)
	}
	a.IDs = nil
	n.Answer = a
	return choice, true
}

// Put stores a ticket or a note for the rest of its life. It releases the tickets that it displaces, and a ticket that the store refuses.
func (p *Pins) Put(ctx context.Context, key convcache.Key, ticket convcache.Ticket, model string) convcache.Outcome {
	if !ticket.HandedBack() {
		p.putting(key, &ticket, model)
	}
	displaced, outcome := p.deps.Store.Put(ctx, key, ticket, time.Until(ticket.Deadline))
	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range displaced {
		if old := &displaced[i]; !old.HandedBack() {
			if n := p.claim(key, old, model); n != nil {
				p.release(n, old)
			}
		}
	}
	switch n := p.pins[ticket.ID]; {
	case ticket.HandedBack(), n == nil, n.state != putting: // a note has no pin, or a taker was faster
	case outcome == convcache.Stored, outcome == convcache.Unavailable: // without an answer, the store may still have it
		p.stored(n)
	default:
		p.release(n, &ticket)
	}
	return outcome
}

func (p *Pins) putting(key convcache.Key, t *convcache.Ticket, model string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.gaveUp, key)
	n := p.pins[t.ID]
	if n == nil {
		n = p.claim(key, t, model)
	}
	if n != nil { // else its blocks are free, and a taker gets Consumed
		n.Key, n.Account = key, t.Account
		p.move(n, putting)
	}
}

// stored moves the pin of a ticket that was put, and starts what follows from that. The caller holds p.mu.
func (p *Pins) stored(n *pin) {
	if p.move(n, stored); n.epoch < p.swept { // it was on its way when the epoch began
		p.giveUp(n, record.ReasonQuarantined)
	}
	p.makeRoom()
	if n.ids != nil {
		// With the ticker alone, the legs of all pairs would begin together, four times a second, and turns would wait for them.
		time.AfterFunc(n.until.Sub(p.now()), func() { ask(p.wake) })
	}
	if h := n.holder; h != nil {
		if most := p.Budget(h.incarnation.Engine()); most > 0 && h.tokens[stored] > most {
			ask(p.over)
		}
	}
}

// ask starts a round of a task, unless one is already asked for.
func ask(round chan struct{}) {
	select {
	case round <- struct{}{}:
	default:
	}
}

// Unuse releases the blocks of a ticket that is not in the store. If reader is not nil, that incarnation of prefill was sent the ticket and has not
// answered: decode may have freed the blocks, or prefill may still be reading them. The release makes sure. It does no harm if the blocks are already
// free (measured on vLLM 0.32).
func (p *Pins) Unuse(ticket *convcache.Ticket, reader *fleet.Incarnation) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := p.pins[ticket.ID]; n != nil && n.state <= sent { // else decode has ended
		n.reader = reader
		p.release(n, ticket)
	}
}

// release lets a pin whose ticket is not in the store wait for its release. The caller holds p.mu.
func (p *Pins) release(n *pin, ticket *convcache.Ticket) {
	parsed, err := p.read(ticket)
	n.drop()
	n.params, n.reading, n.since = bytes.Clone(ticket.Params), parsed.Reading, p.now() // params may be a slice of the whole answer
	to := due
	// If the ticket can't be read, an older or a foreign version has made it, and no engine would understand it either.
	if err != nil || n.holder != nil && (!p.cfg.Release || len(n.holder.due) >= maxDue) {
		to = lost
	}
	p.move(n, to)
}

// UnuseParams gives up the blocks in decode's params, unless params is nil or the blocks have a ticket.
func (p *Pins) UnuseParams(params []byte, holder *fleet.Incarnation, model string, freshAsOf time.Time) {
	if params == nil {
		return
	}
	ticket, _, err := p.Received(params, holder, freshAsOf)
	if err != nil && !errors.Is(err, upstream.ErrMisplaced) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.knows(ticket.ID) {
		p.release(p.claim(convcache.Key{}, &ticket, model), &ticket)
	}
}

// WhyGone returns why a conversation has no ticket in the store: it is being handed back, or was given up and none was stored since; "" if unknown.
func (p *Pins) WhyGone(key convcache.Key) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if slices.ContainsFunc(p.underWay, func(u *underWay) bool { return u.Key == key }) {
		return record.ReasonHandingBack
	}
	return p.gaveUp[key]
}

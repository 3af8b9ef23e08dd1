package pins

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"carryover/convcache"
	"carryover/server/quarantine"
	"carryover/upstream"
	"carryover/upstream/connector/nixl"
	"carryover/upstream/fleet"
	"carryover/upstream/fleet/pairs"
)

// modelStore keeps tickets by conversation. A put displaces what the conversation has, or not; any operation may lose its answer.
type modelStore struct {
	random  *rand.Rand
	tickets map[convcache.Key]map[convcache.TicketID]convcache.Ticket
	lost    bool // the next operation takes place, or does not, and has no answer
}

// Take implements Store.
func (s *modelStore) Take(_ context.Context, key convcache.Key, id convcache.TicketID) (convcache.Ticket, convcache.Outcome) {
	ticket, found := s.tickets[key][id]
	if s.lost {
		if s.lost = false; s.random.IntN(2) == 0 {
			delete(s.tickets[key], id)
		}
		return convcache.Ticket{}, convcache.Unavailable
	}
	if !found {
		return convcache.Ticket{}, convcache.Consumed
	}
	delete(s.tickets[key], id)
	return ticket, convcache.Taken
}

// Put implements Store.
func (s *modelStore) Put(_ context.Context, key convcache.Key, ticket convcache.Ticket, _ time.Duration) (displaced []convcache.Ticket, _ convcache.Outcome) {
	if s.lost {
		s.lost = false
		return nil, convcache.Unavailable
	}
	if s.random.IntN(8) == 0 {
		return nil, convcache.NotStored
	}
	if s.random.IntN(3) == 0 {
		displaced = slices.Collect(maps.Values(s.tickets[key]))
		s.tickets[key] = nil
	}
	if s.tickets[key] == nil {
		s.tickets[key] = map[convcache.TicketID]convcache.Ticket{}
	}
	s.tickets[key][ticket.ID] = ticket
	return displaced, convcache.Stored
}

// noIDs are ids in no memory.
type noIDs struct{}

// Len implements tokenIDs.
func (noIDs) Len() int { return 0 }

// AppendList implements tokenIDs.
func (noIDs) AppendList(dst []byte) []byte { return append(dst, "[]"...) }

// Are implements tokenIDs.
func (noIDs) Are([]byte) bool { return true }

// Free implements tokenIDs.
func (noIDs) Free() {}

// modelLegs end as the next legs are to end.
type modelLegs struct{ ends func() error }

// Prefill implements Legs.
func (l *modelLegs) Prefill(context.Context, upstream.Leg) (upstream.PrefillAnswer, error) {
	return upstream.PrefillAnswer{PromptIDs: []byte("[]")}, l.ends()
}

// HandBack implements Legs.
func (l *modelLegs) HandBack(ctx context.Context, leg upstream.Leg) (upstream.PrefillAnswer, error) {
	return l.Prefill(ctx, leg)
}

// Close implements Legs.
func (*modelLegs) Close() {}

// modelConnector hands tickets back without their ids.
type modelConnector struct{ nixl.Connector }

// HandBack implements Connector.
func (modelConnector) HandBack(upstream.TicketOffer, string, string) (upstream.ReleaseLeg, error) {
	return upstream.ReleaseLeg{Body: []byte("{}")}, nil
}

// model is pins of one pair, driven by random histories.
type model struct {
	*Pins
	t               *testing.T
	random          *rand.Rand
	store           *modelStore
	fleet           *fleet.Fleet
	prefill, decode *fleet.Incarnation
	passed          atomic.Int64    // by how much the model's time is ahead
	answers         map[uint64]int  // the tokens of each answer, by the name of its blocks
	left            map[uint64]bool // those that were left to decode's TTL at some time
	claimed         []*Claim
	riding          []*Release
	away            []awayTicket // tickets that another replica has
	n               int
	history         []string
}

// awayTicket is a ticket of a conversation.
type awayTicket struct {
	key convcache.Key
	convcache.Ticket
}

const (
	modelKeys = 3
	modelTTL  = 480 * time.Second
)

func newModel(t *testing.T, seed uint64) *model {
	t.Helper()
	m := &model{t: t, random: rand.New(rand.NewPCG(seed, 1)), answers: map[uint64]int{}, left: map[uint64]bool{}}
	m.fleet, m.prefill, m.decode = newPairIn(t, fleet.Config{ReadLimit: time.Minute, Now: m.now})
	m.store = &modelStore{random: m.random, tickets: map[convcache.Key]map[convcache.TicketID]convcache.Ticket{}}
	secret, err := convcache.RandomSecret()
	if err != nil {
		t.Fatal(err)
	}
	quiet := slog.New(slog.DiscardHandler)
	m.Pins = New(Config{
		ReleaseConfig:  ReleaseConfig{Release: m.random.IntN(4) > 0, PinnedShare: 0.3, ReleaseBacklog: 1},
		HandBackConfig: HandBackConfig{HandBack: HandBackIdle, HandBackMemory: 1 << 20}, TTL: modelTTL, TrialTimeout: time.Second, StoreTimeout: time.Second,
		Logger: quiet,
	}, Deps{
		Fleet: m.fleet, Store: m.store, Legs: &modelLegs{m.fault}, Connector: modelConnector{}, Epoch: quarantine.NewEpoch(secret, nil, quiet, nil),
		Background: func(_, _ string, work func()) { work() }, Blame: func(*fleet.Engine, error) {},
	})
	m.states.strict = true
	m.prefill.PairWith(m.decode).ExchangedKV()
	return m
}

func (m *model) now() time.Time { return time.Now().Add(time.Duration(m.passed.Load())) }

// fault is how a leg ends: mostly well.
func (m *model) fault() error {
	switch m.random.IntN(10) {
	case 0:
		return &upstream.LegError{Kind: upstream.Dial}
	case 1:
		return &upstream.LegError{Kind: upstream.Status, Status: 400, Sent: true}
	case 2:
		return &upstream.LegError{Kind: upstream.Gone, Sent: true}
	}
	return nil
}

func (m *model) key() convcache.Key { return convcache.Key{byte(1 + m.random.IntN(modelKeys))} }

// answer returns the ticket of a new answer of decode.
func (m *model) answer() (convcache.Ticket, upstream.TicketParams) {
	m.n++
	raw := fmt.Sprintf(`{"do_remote_prefill":false,"do_remote_decode":true,"remote_block_ids":[[1]],"remote_engine_id":"e","remote_request_id":"r%d","remote_host":"h","remote_port":1,"remote_num_tokens":1}`, m.n)
	parsed, err := nixl.Connector{}.ParseTicket([]byte(raw), 0)
	if err != nil {
		m.t.Fatal(err)
	}
	tokens := 10 * (1 + m.random.IntN(5))
	m.answers[m.states.name("d", &parsed)] = tokens
	return convcache.Ticket{
		Branch: convcache.Branch{
			ID: convcache.NewTicketID(), Decode: convcache.Holder{Instance: "d", Incarnation: m.decode.ID()}, Tokens: tokens,
			FreshAsOf: m.now(), Deadline: m.now().Add(modelTTL - time.Minute),
		},
		Params: parsed.Params, Reading: ReadingOf(parsed),
	}, parsed
}

// step does one thing at random.
func (m *model) step(ctx context.Context) {
	steps := map[string]func(){
		"answer": func() {
			ticket, parsed := m.answer()
			key := m.key()
			if !m.Fresh("d", parsed) {
				m.t.Error("a fresh answer is taken for another")
			}
			outcome := m.Put(ctx, key, ticket, "m")
			if k := m.retained(&ticket); outcome == convcache.Stored && m.random.IntN(2) == 0 {
				k.key, k.homed = key, true
				m.HandBacks.queues.mu.Lock()
				m.HandBacks.queues.add(k)
				m.HandBacks.queues.mu.Unlock()
			} else if outcome == convcache.Stored && m.cfg.Release && m.random.IntN(2) == 0 {
				m.HandBacks.late.add(lateRelease{key: key, id: ticket.ID, model: "m", due: m.now().Add(time.Duration(m.random.IntN(60)) * time.Second)})
			}
		},
		"late": func() { m.releaseLate(ctx, m.now()) },
		"answer outside": func() {
			ticket, parsed := m.answer()
			m.Fresh("d", parsed)
			if !m.HandBacks.take(m.retained(&ticket), &ticket) {
				m.Releases.Unuse(ticket, "m")
			}
		},
		"answer without a ticket": func() {
			_, parsed := m.answer()
			tokens := m.answers[m.states.name("d", &parsed)]
			parsed.Tokens = tokens
			m.Releases.UnuseParsed(parsed, Leftover{Decode: m.decode, Model: "m", FreshAsOf: m.now()})
		},
		"take": func() {
			key := m.key()
			for id := range m.store.tickets[key] {
				if ticket, outcome := m.Take(ctx, key, id); outcome == convcache.Taken && !ticket.HandedBack() {
					pair := m.prefill.PairWith(m.decode)
					pair.Begin("")
					claim := m.Hold(&ticket, Claim{Holder: m.decode, Reader: m.prefill, PairState: pair}, "m", "turn")
					m.claimed = append(m.claimed, &claim)
				}
				return
			}
		},
		"end of a claim": func() { m.settle(ctx) },
		"give up": func() {
			key := m.key()
			for id := range m.store.tickets[key] {
				m.GiveUp(ctx, key, id, "m")
				return
			}
		},
		"piggyback": func() {
			if r := m.Releases.Piggyback(m.prefill); r != nil {
				m.riding = append(m.riding, r)
			}
		},
		"end of a piggyback": func() {
			if len(m.riding) == 0 {
				return
			}
			r := m.riding[0]
			m.riding = m.riding[1:]
			var leg *upstream.LegError
			switch err := m.fault(); {
			case err == nil:
				r.Sent()
			case m.random.IntN(3) == 0:
				r.Malformed()
			case m.random.IntN(3) == 0:
				r.Requeue()
			default:
				leg, _ = err.(*upstream.LegError) //nolint:errorlint // it is one
				r.Failed(leg)
			}
		},
		"releases":   func() { m.Releases.workOff(ctx) },
		"hand-backs": func() { m.HandBacks.Round(ctx, m.now(), func(_ string, leg func() bool) { leg() }) },
		"budget":     func() { m.budget.enforce(ctx) },
		"drain":      func() { m.fleet.Drain(upstream.RoleDecode, "d", m.random.IntN(2) == 0); m.evacuation.round(ctx) },
		"another replica takes": func() {
			key := m.key()
			for id, ticket := range m.store.tickets[key] {
				delete(m.store.tickets[key], id)
				m.away = append(m.away, awayTicket{key, ticket})
				return
			}
		},
		"another replica puts back": func() {
			if n := len(m.away); n > 0 {
				m.store.tickets[m.away[n-1].key] = map[convcache.TicketID]convcache.Ticket{m.away[n-1].ID: m.away[n-1].Ticket}
				m.away = m.away[:n-1]
			}
		},
		"lost answer":      func() { m.store.lost = true },
		"a while":          func() { m.passed.Add(int64(time.Duration(m.random.IntN(100)) * time.Second)) },
		"end of their TTL": func() { m.passed.Add(int64(2 * modelTTL)) },
	}
	names := slices.Sorted(maps.Keys(steps))
	name := names[m.random.IntN(len(names))]
	if name == "end of their TTL" && m.random.IntN(4) > 0 {
		name = "answer"
	}
	m.history = append(m.history, name)
	steps[name]()
	m.prefill.Engine().Refresh(ctx)
}

// retained is a ticket with its ids, due at once.
func (m *model) retained(ticket *convcache.Ticket) *retainedTicket {
	return &retainedTicket{
		id: ticket.ID, ids: noIDs{}, ends: ticket.Deadline, queue: m.HandBacks.queues.queue(pairKey{m.prefill, m.decode}),
		from: handBackOrigin{model: "m"},
	}
}

// settle ends the oldest claim as a turn does.
func (m *model) settle(ctx context.Context) {
	if len(m.claimed) == 0 {
		return
	}
	claim := m.claimed[0]
	m.claimed = m.claimed[1:]
	putBack := func(ctx context.Context, ticket convcache.Ticket) {
		m.Put(ctx, cmp.Or(claim.plan.pin.key, m.key()), ticket, "m")
	}
	switch m.random.IntN(6) {
	case 0:
		claim.GiveUp()
	case 1, 2: // the leg ends as it happens
		claim.Sent()
		if leg, failed := m.fault().(*upstream.LegError); failed { //nolint:errorlint // it is one
			claim.Failed(leg)
		} else {
			claim.Conclude(pairs.Answered)
		}
	case 3: // a panic, or an error that says nothing
		claim.Sent()
	case 4:
		claim.Sent()
		claim.Failed(&upstream.LegError{Kind: upstream.Dial})
	}
	claim.End(ctx, putBack)
	claim.End(ctx, putBack)
}

// check compares the ledger with the states of all answers: what is pinned has exactly one owner, which counts it.
func (m *model) check() {
	m.Ledger.all(m.now())            // what has expired leaves the ledger now,
	live := m.decode.Engine().Live() // and the queue of releases
	want, expired := map[State]int{}, 0
	for name, tokens := range m.answers {
		state := m.states.of(name)
		want[state] += tokens
		if m.left[name] = m.left[name] || state == Expired || state == Unknown; m.left[name] {
			expired += tokens
		}
	}
	stored, queued := m.Ledger.tokens(m.decode), live.Pins.Waiting
	onLegs := want[Claimed] + want[Reading] + want[HandBackQueued] + want[HandingBack] + want[Releasing]
	if stored != want[Stored] || queued != want[ReleaseQueued] {
		m.t.Errorf("the ledger has %d stored and %d queued, the states %v", stored, queued, want)
	}
	// What nobody would free is counted until decode's TTL, in steps of it, even if a ticket whose take had no answer is found again: it is
	// counted twice then if nobody would free it again.
	if live.Pins.Besides < onLegs || live.Pins.Besides > onLegs+2*expired {
		m.t.Errorf("%d tokens are counted besides, want %d on legs and %d at most for decode's TTL", live.Pins.Besides, onLegs, expired)
	}
	if want[Named]+want[Unseen] > 0 {
		m.t.Errorf("nobody owns the blocks of %v", want)
	}
}

// A store that returns a ticket again, as one that has failed over might, gets nobody to read or release its blocks again.
func TestPins_ASecondTicketOfTheSameBlocksIsDropped(t *testing.T) {
	for name, spend := range map[string]func(p *Pins, ticket convcache.Ticket){
		"claimed":  func(*Pins, convcache.Ticket) {},
		"reading":  func(p *Pins, ticket convcache.Ticket) { p.Releases.become(&ticket, Reading) },
		"read":     func(p *Pins, ticket convcache.Ticket) { p.Releases.become(&ticket, Reading); p.Releases.spent(ticket) },
		"released": func(p *Pins, ticket convcache.Ticket) { p.Releases.Unuse(ticket, "m") },
	} {
		m := newModel(t, 1)
		m.cfg.Release = true
		ticket, parsed := m.answer()
		key := m.key()
		m.Fresh("d", parsed)
		m.Put(t.Context(), key, ticket, "m")
		m.store.tickets[key] = map[convcache.TicketID]convcache.Ticket{ticket.ID: ticket}
		first, outcome := m.Take(t.Context(), key, ticket.ID)
		if outcome != convcache.Taken {
			t.Fatalf("%s: the first take is %s", name, outcome)
		}
		spend(m.Pins, first)
		m.store.tickets[key][ticket.ID] = ticket
		if _, outcome := m.Take(t.Context(), key, ticket.ID); outcome != convcache.Consumed {
			t.Errorf("%s: the second take is %s, want none", name, outcome)
		}
	}
}

func TestPins_TheLedgerIsTheSumOfTheStates(t *testing.T) {
	for seed := range uint64(40) {
		m := newModel(t, seed)
		for range 120 {
			m.step(t.Context())
			if m.check(); t.Failed() {
				t.Fatalf("seed %d after %q", seed, m.history)
			}
		}
	}
}

package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"carryover/convcache"
	"carryover/server"
	"carryover/server/record"
)

// unnamed is a soak in which no request names its conversation.
type unnamed struct {
	*soak
	asked *library
	turns atomic.Int64
	tally hitShares
}

// speaker is the client's side of one thread of a conversation.
type speaker interface {
	name() string
	beginsAlike() bool // others have begun with the same messages
	// split returns a speaker who goes on from here at the same time, with the same words or with others, or nil.
	split(turn int) speaker
	// exchange takes a turn, compares its answer with that of a lone instance, and makes it part of the history.
	exchange(ctx context.Context, s *unnamed, name string, turn int) (exchanged, error)
}

// exchanged is what the books need of a turn.
type exchanged struct {
	prompt, ids   []int // of the request, and with the answer behind it
	reuse, stored string
	rewritten     bool
}

// opening is how a third of all conversations begin.
var opening = "Say, what does the clerk remember of the river? " + longText(7)

// newSpeaker is of a chat or a completion, or, of each third, of an agent.
func newSpeaker(seed uint64, number int) speaker {
	draw := rand.New(rand.NewPCG(seed, uint64(number)|1<<40))
	alike := draw.IntN(3) == 0
	if draw.IntN(3) == 0 {
		k := newAgentTalk(seed, number)
		k.nameless = true
		if alike {
			k.opening = opening
		}
		return &agentSpeaker{agentTalk: k, alike: alike, draw: draw}
	}
	k := newTalk(seed, number)
	if alike {
		k.opening, k.messages = opening, nil
		if k.api == talkChat {
			k.messages = append(k.messages, encode(map[string]string{"role": "system", "content": "You are patient. " + longText(1)}))
		}
	}
	return &chatSpeaker{talk: k, alike: alike, draw: draw}
}

// splits is how many threads become two at one of their turns, one in so many.
const splits = 10

// chatSpeaker speaks chat and text completions.
type chatSpeaker struct {
	*talk
	alike bool
	draw  *rand.Rand
}

func (k *chatSpeaker) name() string      { return k.id }
func (k *chatSpeaker) beginsAlike() bool { return k.alike }

func (k *chatSpeaker) split(turn int) speaker {
	if turn == 1 || k.draw.IntN(splits) > 0 {
		return nil
	}
	other, seed := *k.talk, k.draw.Uint64()
	other.messages, other.pending, other.ids = slices.Clone(k.messages), slices.Clone(k.pending), slices.Clone(k.ids)
	twins := k.draw.Uint64() % 2
	k.alike = k.alike || twins == 0
	k.talk.draw, other.draw = rand.New(rand.NewPCG(seed, 1)), rand.New(rand.NewPCG(seed, 1+twins))
	return &chatSpeaker{talk: &other, alike: k.alike, draw: rand.New(rand.NewPCG(seed, 3))}
}

func (k *chatSpeaker) exchange(ctx context.Context, s *unnamed, name string, turn int) (x exchanged, err error) {
	members := k.next(turn)
	right, prompt, output, err := s.right(ctx, k.talk, members)
	if err != nil {
		return x, fmt.Errorf("alone: %w", err)
	}
	x = exchanged{prompt: prompt, ids: slices.Concat(prompt, output), rewritten: k.rewritten}
	s.asked.put(x.ids) // before another turn can find the ticket
	front := s.front(k.draw)
	a, err := front.post(ctx, k.path(), k.aside(name), encode(members), unwatched)
	if err != nil {
		return x, err
	}
	if x.reuse = a.reuse(); true {
		err = same(a, right)
	}
	if err == nil {
		x.stored, err = stored(front, name)
	}
	k.heard(a, output)
	return x, err
}

// agentSpeaker speaks the APIs of agents.
type agentSpeaker struct {
	*agentTalk
	alike bool
	draw  *rand.Rand
}

func (k *agentSpeaker) name() string      { return k.id }
func (k *agentSpeaker) beginsAlike() bool { return k.alike }

func (k *agentSpeaker) split(turn int) speaker {
	if turn == 1 || k.draw.IntN(splits) > 0 {
		return nil
	}
	other, seed := *k.agentTalk, k.draw.Uint64()
	other.history, other.results = slices.Clone(k.history), slices.Clone(k.results)
	twins := k.draw.Uint64() % 2
	k.alike = k.alike || twins == 0
	k.agentTalk.draw, other.draw = rand.New(rand.NewPCG(seed, 1)), rand.New(rand.NewPCG(seed, 1+twins))
	return &agentSpeaker{agentTalk: &other, alike: k.alike, draw: rand.New(rand.NewPCG(seed, 3))}
}

func (k *agentSpeaker) exchange(ctx context.Context, s *unnamed, name string, turn int) (x exchanged, err error) {
	header, body := k.next(turn)
	header.Set("X-Request-Id", name)
	right, prompt, output, err := s.rightForAgent(ctx, k.agentTalk, body)
	if err != nil {
		return x, fmt.Errorf("alone: %w", err)
	}
	x = exchanged{prompt: prompt, ids: slices.Concat(prompt, output), rewritten: k.rewritten}
	s.asked.put(x.ids)
	front := s.front(k.draw)
	a, err := front.askAgent(ctx, k.path, header, body)
	if err != nil {
		return x, err
	}
	if x.reuse = a.reuse(); true {
		err = sameSaid(a, right)
	}
	if err == nil {
		x.stored, err = stored(front, name)
	}
	k.heard(a)
	return x, err
}

// front is the replica that a turn goes to.
func (s *unnamed) front(draw *rand.Rand) *rig { return s.fronts[draw.IntN(len(s.fronts))] }

// stored waits for the record of a turn that is answered, and returns what became of its ticket.
func stored(front *rig, name string) (string, error) {
	var rec record.Turn
	select {
	case rec = <-front.turns.turn(name):
		return rec.Stored, nil
	case <-time.After(time.Minute):
		return "", fmt.Errorf("no record of %s after a minute", name)
	}
}

// library is all that was asked and answered.
type library struct {
	mu    sync.Mutex // guards texts
	texts []kept
}

func (l *library) put(ids []int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.texts = append(l.texts, kept{ids: ids})
}

// bound is the most that a ticket may serve of a prompt, whoever has left it.
func (l *library) bound(prompt []int) (most int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, k := range l.texts {
		most = max(most, k.provable(prompt))
	}
	return most
}

// hitShares counts the turns that a ticket of their own thread would have served.
type hitShares struct {
	mu      sync.Mutex  // guards the rest
	plain   [2]hitShare // turns that go on as they were answered, of threads that begin like others and of those that do not
	edited  hitShare
	learnt  int // turns that reused nothing because something had to be learnt first
	engine  int // hits that prefill's own cache has proven
	reasons map[string]int
}

type hitShare struct{ turns, hits int }

func (s hitShare) String() string { return fmt.Sprintf("%d of %d hit", s.hits, s.turns) }

func (h *hitShares) count(alike, rewritten bool, reuse string) {
	reuse = noHit(reuse)
	h.mu.Lock()
	defer h.mu.Unlock()
	if strings.HasPrefix(reuse, "miss;reason=ineligible_unproven") || reuse == "miss;reason=pair_on_trial" {
		h.learnt++
		return
	}
	of := &h.plain[0]
	switch {
	case rewritten:
		of = &h.edited
	case alike:
		of = &h.plain[1]
	}
	of.turns++
	if !strings.HasPrefix(reuse, "hit;") {
		if h.reasons == nil {
			h.reasons = map[string]int{}
		}
		h.reasons[strings.TrimPrefix(reuse, "miss;reason=")]++
		return
	}
	of.hits++
	if byEngine(reuse) {
		h.engine++
	}
}

func (h *hitShares) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return fmt.Sprintf("%s, of those that begin alike %s, rewritten %s, %d while learning, %d by prefill's cache; misses %v",
		h.plain[0], h.plain[1], h.edited, h.learnt, h.engine, h.reasons)
}

func (h *hitShares) verify(t *testing.T, hits floors) {
	t.Helper()
	for _, want := range []struct {
		what    string
		got     hitShare
		percent int
	}{
		{"turns that go on where a ticket has ended", h.plain[0], hits.own},
		{"of conversations that begin alike", h.plain[1], hits.alike},
	} {
		if want.got.turns == 0 || want.got.hits*100 < want.got.turns*want.percent {
			t.Errorf("%s: %s, want %d %%; misses %v", want.what, want.got, want.percent, h.reasons)
		}
	}
}

// liveTickets knows which tickets the stores of all replicas have.
type liveTickets struct {
	mu      sync.Mutex // guards tickets
	tickets map[convcache.TicketID]struct{}
}

// of is the store of one replica, watched.
func (l *liveTickets) of(store server.Store) server.Store { return &watchedStore{store, l} }

type watchedStore struct {
	server.Store
	live *liveTickets
}

// Take implements server.Store.
func (s *watchedStore) Take(ctx context.Context, key convcache.Key, id convcache.TicketID) (convcache.Ticket, convcache.Outcome) {
	ticket, outcome := s.Store.Take(ctx, key, id)
	if outcome == convcache.Taken {
		s.live.forget(id)
	}
	return ticket, outcome
}

// Put implements server.Store.
func (s *watchedStore) Put(ctx context.Context, key convcache.Key, ticket convcache.Ticket, ttl time.Duration) ([]convcache.Ticket, convcache.Outcome) {
	if !ticket.HandedBack() { // a note names no blocks
		s.live.note(ticket.ID) // first: another replica may take it before this one knows that it is stored
	}
	displaced, outcome := s.Store.Put(ctx, key, ticket, ttl)
	if outcome != convcache.Stored {
		s.live.forget(ticket.ID)
	}
	for _, old := range displaced {
		s.live.forget(old.ID)
	}
	return displaced, outcome
}

func (l *liveTickets) note(id convcache.TicketID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.tickets == nil {
		l.tickets = map[convcache.TicketID]struct{}{}
	}
	l.tickets[id] = struct{}{}
}

func (l *liveTickets) forget(id convcache.TicketID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.tickets, id)
}

// expiring is less than the time after which decode frees the blocks of a ticket by itself.
const expiring = 5 * time.Minute

// verify asserts that decode pins what there are tickets for, when all unused ones are released.
func (l *liveTickets) verify(t *testing.T, r *rig, took time.Duration) {
	t.Helper()
	var pinned, live int
	if !within(workedOff, func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		pinned, live = r.atDecode("pins"), len(l.tickets)
		return pinned <= live && (pinned == live || took > expiring) && r.sum("")["running"] == 0
	}) {
		t.Errorf("decode pins %d answers, and there are %d tickets", pinned, live)
	}
}

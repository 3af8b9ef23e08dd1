package pins

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"carryover/convcache"
	"carryover/server/continuation"
	"carryover/server/quarantine"
	"carryover/upstream"
	"carryover/upstream/connector/nixl"
	"carryover/upstream/fleet"
)

const modelTTL = 8 * time.Minute

// decodeModel is the engines of a pair, as the pins of all replicas see them. Decode's cache has 1,000 tokens in blocks of 10.
type decodeModel struct {
	urls   [2]string    // of prefill and decode
	start  atomic.Int64 // of decode
	passed atomic.Int64 // by how much the clock of all is ahead

	answers, generation int
	held                map[string]held
	names               map[convcache.TicketID]string // what decode calls the blocks of a ticket
	random              *rand.Rand                    // nil if no leg fails
	hangs               bool                          // no leg is answered

	logger *slog.Logger // of fleets, nil for none
	tell   func(sentence string)
}

// held is blocks that decode keeps.
type held struct {
	tokens int
	until  time.Time
}

func newDecodeModel(tb testing.TB, seed uint64) *decodeModel {
	tb.Helper()
	d := &decodeModel{held: map[string]held{}, names: map[convcache.TicketID]string{}, random: rand.New(rand.NewPCG(seed, 1)), generation: 1}
	d.start.Store(1)
	once := new(atomic.Int64)
	once.Store(1)
	for i, start := range []*atomic.Int64{once, &d.start} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = fmt.Fprintf(w, "process_start_time_seconds %d\nvllm:cache_config_info{block_size=\"10\",num_gpu_blocks=\"100\"} 1\n", start.Load())
		}))
		tb.Cleanup(server.Close)
		d.urls[i] = server.URL
	}
	return d
}

func (d *decodeModel) now() time.Time { return time.Now().Add(time.Duration(d.passed.Load())) }

// tokens returns what decode holds now.
func (d *decodeModel) tokens() (tokens int) {
	for id, h := range d.held {
		if d.now().After(h.until) {
			delete(d.held, id)
			continue
		}
		tokens += h.tokens
	}
	return tokens
}

// leg is how a leg ends that has decode free the blocks which body names.
func (d *decodeModel) leg(request string) error {
	fail := -1
	if d.random != nil {
		fail = d.random.IntN(10)
	}
	switch {
	case d.hangs:
		return &upstream.LegError{Kind: upstream.Timeout, Sent: true, Err: upstream.ErrReuseTimeout}
	case fail == 0:
		return &upstream.LegError{Kind: upstream.Dial}
	case fail == 1:
		return &upstream.LegError{Kind: upstream.Status, Status: 400, Sent: true}
	case fail == 2: // before decode was told
		return &upstream.LegError{Kind: upstream.Gone, Sent: true}
	}
	delete(d.held, request)
	if fail == 3 { // behind that
		return &upstream.LegError{Kind: upstream.Gone, Sent: true}
	}
	return nil
}

// modelStore keeps tickets by conversation. A put displaces what the conversation has, or not; any operation may lose its answer.
type modelStore struct {
	convcache.Store
	random  *rand.Rand
	tickets map[convcache.Key]map[convcache.TicketID]convcache.Ticket
	lost    bool                 // the next operation takes place, or does not, and has no answer
	missing []convcache.TicketID // what a take or put without an answer has kept from all: who does not find it believes that another has it
}

func newModelStore(random *rand.Rand) *modelStore {
	return &modelStore{random: random, tickets: map[convcache.Key]map[convcache.TicketID]convcache.Ticket{}}
}

// Take implements Store.
func (s *modelStore) Take(_ context.Context, key convcache.Key, id convcache.TicketID) (convcache.Ticket, convcache.Outcome) {
	ticket, found := s.tickets[key][id]
	if s.lost {
		if s.lost = false; s.random.IntN(2) == 0 {
			delete(s.tickets[key], id)
			s.missing = append(s.missing, id)
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
		s.missing = append(s.missing, ticket.ID)
		return nil, convcache.Unavailable
	}
	if s.random != nil && s.random.IntN(8) == 0 {
		return nil, convcache.NotStored
	}
	if s.random != nil && s.random.IntN(3) == 0 {
		for _, id := range slices.SortedFunc(maps.Keys(s.tickets[key]), func(a, b convcache.TicketID) int { return slices.Compare(a[:], b[:]) }) {
			displaced = append(displaced, s.tickets[key][id])
		}
		s.tickets[key] = nil
	}
	if s.tickets[key] == nil {
		s.tickets[key] = map[convcache.TicketID]convcache.Ticket{}
	}
	s.tickets[key][ticket.ID] = ticket
	return displaced, convcache.Stored
}

// modelLegs end as those of the model.
type modelLegs struct {
	upstream.Legs
	*decodeModel
}

// Prefill implements Legs.
func (l modelLegs) Prefill(_ context.Context, leg upstream.Leg) (upstream.PrefillAnswer, error) {
	return upstream.PrefillAnswer{PromptIDs: []byte("[]")}, l.leg(string(leg.Body.Bytes()))
}

// HandBack implements Legs.
func (l modelLegs) HandBack(ctx context.Context, leg upstream.Leg) (upstream.PrefillAnswer, error) {
	return l.Prefill(ctx, leg)
}

// Close implements Legs.
func (modelLegs) Close() {}

// modelConnector makes legs whose body is the name of the blocks.
type modelConnector struct{ nixl.Connector }

// HandBack implements Connector.
func (modelConnector) HandBack(offer upstream.TicketOffer, _, _ string) (upstream.ReleaseLeg, error) {
	parsed, err := nixl.Connector{}.ParseTicket(offer.Ticket, 0)
	return upstream.ReleaseLeg{Body: []byte(parsed.RequestID)}, err
}

// Release implements Connector.
func (c modelConnector) Release(offer upstream.TicketOffer, _ string) (upstream.ReleaseLeg, error) {
	return c.HandBack(offer, "", "")
}

// replica is the pins of one process, in front of the model.
type replica struct {
	*Pins
	t               testing.TB
	model           *decodeModel
	store           *modelStore
	fleet           *fleet.Fleet
	prefill, decode *fleet.Incarnation
}

func newReplica(tb testing.TB, model *decodeModel, store *modelStore, cfg Config) *replica {
	tb.Helper()
	client := upstream.NewClient(upstream.ClientConfig{DialTimeout: time.Minute})
	tb.Cleanup(client.Close)
	f := fleet.New(fleet.Config{Client: client, ReadLimit: time.Minute, AskLimit: time.Minute, Now: model.now, Prefill: firstOf{}, Decode: firstOf{}, Logger: model.logger, Tell: model.tell})
	f.Set([]upstream.Instance{
		{Name: "p", Role: upstream.RolePrefill, BaseURL: model.urls[0]}, {Name: "d", Role: upstream.RoleDecode, BaseURL: model.urls[1], KVTTL: modelTTL},
	})
	r := &replica{
		t: tb, model: model, store: store, fleet: f,
		prefill: f.Engines(upstream.RolePrefill)[0].Current(tb.Context()), decode: f.Engines(upstream.RoleDecode)[0].Current(tb.Context()),
	}
	secret, err := convcache.RandomSecret()
	if err != nil {
		tb.Fatal(err)
	}
	quiet := slog.New(slog.DiscardHandler)
	cfg.TTL, cfg.TrialTimeout, cfg.Logger = modelTTL, time.Second, quiet
	r.Pins = New(cfg, Deps{
		Fleet: r.fleet, Store: store, Legs: modelLegs{decodeModel: model}, Connector: modelConnector{}, Epoch: quarantine.New(quarantine.Config{Secret: secret}),
		Background: func(_, _ string, work func()) { work() },
	})
	r.strict = true
	r.prefill.PairWith(r.decode).ExchangedKV()
	return r
}

type firstOf struct{}

// Pick implements upstream.Policy.
func (firstOf) Pick([]upstream.Candidate, string) int { return 0 }

// releasing is the configuration of pins that release, and hand back what is due.
func releasing() Config {
	return Config{
		ReleaseConfig:  ReleaseConfig{Release: true, PinnedShare: 0.3, ReleaseBacklog: 1},
		HandBackConfig: HandBackConfig{HandBack: HandBackIdle, HandBackMemory: 1 << 20},
	}
}

// alone returns a replica whose store and legs do not fail.
func alone(tb testing.TB) *replica {
	tb.Helper()
	model := newDecodeModel(tb, 1)
	model.random = nil
	return newReplica(tb, model, newModelStore(nil), releasing())
}

// answer returns the ticket of a new answer of decode of so many tokens.
func (r *replica) answer(tokens int) convcache.Ticket {
	m := r.model
	m.answers++
	name := fmt.Sprintf("r%d", m.answers)
	raw := fmt.Sprintf(`{"do_remote_prefill":false,"do_remote_decode":true,"remote_block_ids":[[1]],"remote_engine_id":"e","remote_request_id":"%s","remote_host":"h","remote_port":1,"remote_num_tokens":1,"remote_registration_generation":%d}`, name, m.generation)
	parsed, err := nixl.Connector{}.ParseTicket([]byte(raw), 0)
	if err != nil {
		r.t.Fatal(err)
	}
	m.held[name], m.names[Name("d", &parsed)] = held{(tokens + 9) / 10 * 10, m.now().Add(modelTTL)}, name
	return convcache.Ticket{
		Branch: convcache.Branch{
			ID: Name("d", &parsed), Decode: convcache.Holder{Instance: "d", Incarnation: r.decode.ID()}, Tokens: tokens,
			FreshAsOf: m.now(), Deadline: m.now().Add(modelTTL - time.Minute),
		},
		Params: parsed.Params, Reading: readingOf(parsed),
	}
}

// answered makes the pin of a ticket that is never handed back.
func (r *replica) answered(ticket *convcache.Ticket) bool {
	_, ok := r.Answered(Answer{Conversation: "c"}, "", continuation.Kind{}, ticket)
	return ok
}

// put stores the ticket of a new answer.
func (r *replica) put(key byte, tokens int, of string) convcache.Ticket {
	r.t.Helper()
	ticket := r.answer(tokens)
	ticket.Account = of
	if !r.answered(&ticket) {
		r.t.Error("a fresh answer is taken for another")
	}
	r.Put(r.t.Context(), convcache.Key{key}, ticket, "m")
	return ticket
}

// plan has a stored ticket handed back or released from now on.
func (r *replica) plan(id convcache.TicketID, retreat, retire time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := r.pins[id]; n != nil && n.state == stored {
		if n.until = retire; !retreat.IsZero() {
			n.until, n.Prefill, n.Decode, n.ids = retreat, r.prefill, r.decode, r.arena.Retain(nil)
		}
		r.move(n, stored)
	}
}

// states returns the tokens of the decode engine by state.
func (r *replica) states() [states]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pass(r.now())
	if h := r.holders[r.decode]; h != nil {
		return h.tokens
	}
	return [states]int{}
}

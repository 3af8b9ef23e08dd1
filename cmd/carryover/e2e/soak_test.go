package e2e

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"carryover/cmd/carryover/testrig"
	"carryover/server/record"
)

// soakVariable is the number of conversations of the soak, 2,000 in the long form.
const soakVariable = "CARRYOVER_SOAK"

const (
	soakShort = 80 // conversations within go test
	soakTurns = 5
	soakAtOne = 6 // conversations at a time
	// soakLearning is the first part of the conversations in which shapes of requests
	// are met for the first time; what must be learnt there is not asked to be reused.
	soakLearning = 3
)

// soaks are the deployments that make text and tokens disagree, each in another way.
func soaks() map[string]string {
	return map[string]string{
		"append-only, plug-in":                    `{"output_token_ids":true}`,
		"reasoning stripped, empty deltas":        `{"template":"strip_reasoning","empty_deltas":true}`,
		"thinking prompt, non-canonical, plug-in": `{"template":"thinking_prompt","sampling":"noncanonical","output_token_ids":true}`,
		"trimmed, non-canonical, empty deltas":    `{"template":"trim","sampling":"noncanonical","empty_deltas":true}`,
	}
}

// soak is many random conversations through one program, and a lone instance that says
// what is right.
type soak struct {
	*rig
	fronts []*rig                      // where turns go, at random; the rig alone if there are none
	permit func(context.Context) error // asked before each turn, if not nil
	uses   *blockUses
	pins   *pinSamples // nil takes none
	seed   uint64

	mu      sync.Mutex // guards the rest
	tally   tally
	reasons map[string]int
	seen    seenTurns
}

// tally adds up what was offered, and what should have been.
type tally struct{ turns, hits, engine, offered, possible, learning int }

func TestTokenProof_SoakOfRandomConversations(t *testing.T) {
	t.Parallel()
	conversations := soakSize(t, soakShort, 1)
	seed := uint64(0)
	for _, name := range slices.Sorted(maps.Keys(soaks())) {
		seed++
		t.Run(name, func(t *testing.T) {
			newSoak(t, soaks()[name], seed).run(t, conversations/len(soaks()), func(i int) voice { return newTalk(seed, i) })
		})
	}
}

// soakSize returns short, or with CARRYOVER_SOAK a share of what it says.
func soakSize(t *testing.T, short, share int) int {
	t.Helper()
	set := os.Getenv(soakVariable)
	if set == "" {
		return short
	}
	n, err := strconv.Atoi(set)
	if err != nil {
		t.Fatalf("%s: %v", soakVariable, err)
	}
	return max(1, n/share)
}

func newSoak(t *testing.T, engines string, seed uint64) *soak {
	t.Helper()
	cfg := engineWith(engines)
	cfg.Blocks = 1 << 16 // no answer waits for memory
	s := &soak{seed: seed}
	s.rig, s.uses = startReleasing(t, cfg)
	s.pins = samplePins(t, s.rig, s.uses)
	return s
}

// run holds the conversations that talk makes.
func (s *soak) run(t *testing.T, conversations int, talk func(number int) voice) {
	t.Helper()
	began := time.Now()
	severally(t, soakAtOne, conversations, func(ctx context.Context, i int) error {
		return s.converse(ctx, talk(i), i >= conversations/soakLearning)
	})
	s.pins.end()
	s.verifyCounters(t)
	s.verifyReads(t)
	k := s.tally
	t.Logf("%d conversations in %s; of the last two thirds: %d later turns, %d hits, %d of %d provable tokens offered, %d turns while learning; misses %v",
		conversations, time.Since(began).Round(time.Millisecond), k.turns, k.hits, k.offered, k.possible, k.learning, s.reasons)
	if k.hits == 0 || k.offered*100 < k.possible*95 {
		t.Errorf("%d hits; offered %d of %d provable tokens, want 95 %%", k.hits, k.offered, k.possible)
	}
	if k.learning*4 > k.turns {
		t.Errorf("%d of %d turns reused nothing because something had to be learnt first, want a quarter at most", k.learning, k.turns)
	}
	if s.atPrefill("external_tokens") == 0 {
		t.Error("prefill read no token of decode's")
	}
}

// severally has so many things done, at most limit of them at a time.
func severally(t *testing.T, limit, n int, do func(ctx context.Context, i int) error) {
	t.Helper()
	group, ctx := errgroup.WithContext(t.Context())
	group.SetLimit(limit)
	for i := range n {
		group.Go(func() error { return do(ctx, i) })
	}
	noError(t, group.Wait())
}

// verifyReads asserts that nothing was read wrongly or twice, that nothing hangs, and that
// all hand-overs were read.
func (r *rig) verifyReads(t *testing.T) {
	t.Helper()
	r.stop()
	r.nothingWrong(t, "load_failures", "failures", "parked", "late_notifications")
	r.saidNothing(t)
	if !testrig.Eventually(func() bool { return r.atPrefill("leased_pins") == 0 }) {
		t.Errorf("hand-overs that were not read: got %d, want 0", r.atPrefill("leased_pins"))
	}
}

// voice is the client's side of a conversation, by one API or another.
type voice interface {
	name() string
	turns() int
	// ready makes the request of a turn, which names its conversation or not, and asks a lone instance what is right.
	ready(ctx context.Context, s *soak, name string, turn int, named bool) (asking, error)
	// again is the same from here on, which draws for itself.
	again(draw *rand.Rand) voice
	// misses checks what is said of a miss against the books, if anything is known of it.
	misses(reuse string, tickets, worth int) error
}

// asking is a request that is ready.
type asking struct {
	prompt, output []int // as a lone instance has them
	rewritten      bool
	// send sends it, compares the answer with that of the lone instance, and makes it part of the history.
	send func(front *rig) (*answered, error)
}

func (s *soak) converse(ctx context.Context, k voice, counted bool) error {
	var tickets, ever shelf
	for turn := 1; turn <= k.turns(); turn++ {
		name := k.name() + "-" + strconv.Itoa(turn)
		ask, err := k.ready(ctx, s, name, turn, true)
		if err != nil {
			return fmt.Errorf("%s, alone: %w", name, err)
		}
		a, rec, err := s.turn(ctx, ask, name)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		at, want := tickets.best(ask.prompt)
		got, bound := offeredBy(a), 0
		for _, ticket := range ever.tickets {
			bound = max(bound, ticket.provable(ask.prompt))
		}
		if got > bound && !byEngine(a.reuse()) { // prefill's cache also has prompts whose answers left nothing
			return fmt.Errorf("%s: %s, but no ticket has more than %d tokens of the prompt", name, a.reuse(), bound)
		}
		if err := k.misses(a.reuse(), len(tickets.tickets), want); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if got > 0 && at >= 0 {
			tickets.use(at)
		}
		if rec.Stored == "final" {
			tickets = shelf{} // they are given up
		}
		ticket := kept{ids: slices.Concat(ask.prompt, ask.output)}
		if rec.Stored == "yes" {
			tickets.put(ticket)
		}
		if rec.Stored == "yes" || rec.Stored == "unavailable" { // then it may have been stored
			ever.tickets = append(ever.tickets, ticket)
		}
		if counted && turn > 1 && !rec.Reuse.Off {
			s.count(a.reuse(), got, want)
		}
	}
	return nil
}

// turn sends a request through the program and returns its answer and its record.
func (s *soak) turn(ctx context.Context, ask asking, name string) (*answered, record.Turn, error) {
	if s.permit != nil {
		if err := s.permit(ctx); err != nil {
			return nil, record.Turn{}, err
		}
	}
	defer s.pins.begin()()
	front := s.rig
	if len(s.fronts) > 0 {
		front = s.fronts[rand.IntN(len(s.fronts))]
	}
	a, err := ask.send(front)
	if err != nil {
		return nil, record.Turn{}, err
	}
	rec, err := front.turns.wait(name)
	s.sees(a, &rec)
	return a, rec, err
}

// count adds a turn to the tally.
func (s *soak) count(reuse string, got, want int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tally.turns++
	if got > 0 {
		s.tally.hits++
		if byEngine(reuse) {
			s.tally.engine++
		}
	} else {
		reuse = noHit(reuse)
		if s.reasons == nil {
			s.reasons = map[string]int{}
		}
		s.reasons[strings.TrimPrefix(reuse, "miss;reason=")]++
	}
	if strings.HasPrefix(reuse, "miss;reason=ineligible_unproven") || reuse == "miss;reason=pair_on_trial" {
		s.tally.learning++
		return
	}
	s.tally.offered += min(got, want)
	s.tally.possible += want
}

// offeredBy is the number of tokens that a hit says it has offered.
func offeredBy(a *answered) int { return offeredIn(a.reuse()) }

func offeredIn(reuse string) int {
	rest, ok := strings.CutPrefix(reuse, "hit;tokens=")
	if !ok {
		return 0
	}
	digits, _, _ := strings.Cut(rest, ";")
	n, err := strconv.Atoi(digits)
	if err != nil {
		return 1 << 30
	}
	return n
}

// right asks the lone instance, in a part of its cache that no other request shares, and
// now and then one that has never been asked before.
func (s *soak) right(ctx context.Context, k *talk, members object) (a *answered, prompt, output []int, err error) {
	body := maps.Clone(members)
	body["return_token_ids"], body["cache_salt"] = true, strconv.FormatUint(rand.Uint64(), 36)
	var events [][]byte
	a, err = s.lone.post(ctx, k.path(), nil, encode(body), func(_ int, data []byte) { events = append(events, bytes.Clone(data)) })
	if err != nil {
		return nil, nil, nil, err
	}
	if a.status != http.StatusOK {
		return nil, nil, nil, fmt.Errorf("status %d: %s", a.status, a.raw)
	}
	prompt, output = idsOf(a, events)
	if body["stream"] != true && k.odds(10) {
		fresh, err := alone(ctx, s.cfg, k.path(), body)
		if err == nil {
			err = same(a, fresh)
		}
		if err != nil {
			return nil, nil, nil, fmt.Errorf("the lone instance is not what a fresh one is: %w", err)
		}
	}
	return a, prompt, output, nil
}

// same compares what two answers say.
func same(got, want *answered) error {
	switch {
	case got.status != want.status || got.ends != want.ends:
		return fmt.Errorf("status %d, ends %s, want %d, %s: %.300s", got.status, got.ends, want.status, want.ends, got.raw)
	case got.content != want.content:
		return fmt.Errorf("content %q, want %q", got.content, want.content)
	case got.reasoning != want.reasoning:
		return fmt.Errorf("reasoning %q, want %q", got.reasoning, want.reasoning)
	case len(got.tools) != len(want.tools):
		return fmt.Errorf("%d tool calls, want %d", len(got.tools), len(want.tools))
	}
	for i, call := range got.tools {
		if call.name != want.tools[i].name || call.arguments != want.tools[i].arguments {
			return fmt.Errorf("tool call %d is %s %q, want %s %q", i, call.name, call.arguments, want.tools[i].name, want.tools[i].arguments)
		}
	}
	return nil
}

package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"carryover/cmd/carryover/config"
	"carryover/cmd/carryover/testrig"
	"carryover/server"
	"carryover/upstream"
	"carryover/upstream/fleet"
	"carryover/upstream/vllmsim"
)

// Conversations of the soak of doubts within go test: of each doubt alone, and of all in mixture. With CARRYOVER_SOAK
// the mixture has as many as it says with each proof, and each doubt alone a twentieth of that.
const (
	doubtAlone, doubtMixture = 4, 20
	doubtShare               = 20
	// doubtCalm is the last part of the turns, in which nothing happens any more and what is unused is released.
	doubtCalm = 6
)

// Random conversations while engines and clients leave doubts about what is where: nothing is read wrongly or twice,
// no answer is wrong, no request fails for which no doubt accounts, and no blocks stay pinned.
func TestSoakOfDoubts(t *testing.T) {
	t.Parallel()
	alone, mixture := soakSize(t, doubtAlone, doubtShare), soakSize(t, doubtMixture, 1)
	seed := uint64(0)
	soak := func(name string, kinds []doubt, conversations int, flags ...string) {
		seed++
		own := seed
		t.Run(strings.Join(append([]string{name}, flags...), "/"), func(t *testing.T) {
			t.Parallel()
			version := vllmsim.VLLM033
			if strings.HasSuffix(name, " of 0.32") || own%4 == 0 && len(kinds) == 1 && !kinds[0].Sleeps { // whose params tell nothing of a sleep
				version = vllmsim.VLLM032
			}
			newDoubting(t, version, kinds, own, conversations, flags...).run(t, conversations)
		})
	}
	for _, kind := range doubts(t, "doubts") {
		soak(kind.Name, []doubt{kind}, alone*max(1, kind.Times))
	}
	soak("mixture", doubts(t, "doubts"), mixture)
	soak("mixture of 0.32", doubts(t, "doubts"), mixture)
	soak("mixture", doubts(t, "doubts"), mixture, "--connector", config.ConnectorMulti)
	soak("decode sleeps", doubts(t, "sleeping"), 2*alone)
	soak("restarts alike", doubts(t, "alike"), 2*alone)
}

// doubting is a soak in a storm of doubts.
type doubting struct {
	*soak
	storm   *storm
	stored  *ledger
	alike   bool // engines start anew without a trace
	handing bool // tickets are handed back; some conversations are not named, and clients pause now and then

	// guarded by soak.mu
	ended    map[string]int
	faults   []string
	stranded int // answers whose blocks the program may not know of
	unknown  int // answers of a start of decode that is not known: their blocks can't be released
}

func newDoubting(t *testing.T, version string, kinds []doubt, seed uint64, conversations int, flags ...string) *doubting {
	t.Helper()
	cfg := vllmsim.DefaultConfig()
	cfg.Version = version
	// No answer waits for memory, and an engine that starts does not fill more of it than that takes.
	cfg.Blocks, cfg.Seed = min(1<<16, 512*conversations), seed
	cfg.OutputTokenIDs, cfg.EmptyDeltas = seed%2 == 0, seed%4 < 2
	d := &doubting{
		soak:   &soak{seed: seed, uses: newUses()},
		storm:  &storm{kinds: kinds, draw: rand.New(rand.NewPCG(seed, 1))},
		stored: &ledger{},
		ended:  map[string]int{},
		alike:  slices.ContainsFunc(kinds, func(kind doubt) bool { return kind.Alike }),
	}
	prefills, decodes := []vllmsim.Config{cfg, cfg}, []vllmsim.Config{cfg, cfg}
	decodes[1].StepAhead = true
	if d.alike {
		for i := range prefills {
			prefills[i].EngineID, decodes[i].EngineID = fmt.Sprint("prefill-", i), fmt.Sprint("decode-", i)
		}
	}
	d.rig = startRig(t, rigConfig{
		prefill: prefills, decode: decodes, alone: true,
		flags:  slices.Concat(inTurn, []string{"--release", "on"}, flags),
		server: releasingAtOnce,
		replace: func(deps *server.Deps) {
			d.uses.watch(deps)
			deps.Store, d.storm.deps = d.stored.live(deps.Store), deps
		},
	})
	d.cfg = cfg
	d.storm.instances = map[string][]*vllmsim.Instance{config.RolePrefill: d.prefill, config.RoleDecode: d.decode}
	d.uses.unsure, d.storm.restarted = d.storm.unsure, d.uses.restarts
	d.pins = samplePins(t, d.rig, d.uses)
	d.pins.doubts = d
	return d
}

func (d *doubting) run(t *testing.T, conversations int) {
	t.Helper()
	began := time.Now()
	turns := conversations * soakTurns
	d.storm.calmAfter = turns - turns/doubtCalm
	severally(t, soakAtOne, conversations, func(ctx context.Context, i int) error { return d.converse(ctx, newTalk(d.seed, i)) })
	if err := d.storm.settle(t.Context()); err != nil {
		t.Error(err)
	}
	d.verifyPins(t)
	d.pins.end()
	d.stop()
	d.verifyDoubts(t)
	t.Logf("seed %d: %d turns in %s, %d spells, %d of %d later turns hit, misses %v, ends %v, %d answers of unknown starts, %d tickets spent in vain, %d releases",
		d.seed, turns, time.Since(began).Round(time.Millisecond), len(d.storm.spells), d.tally.hits, d.tally.turns, d.reasons, d.ended,
		d.unknown, d.uses.failed(), d.uses.released)
}

// befall has engines start anew, or sleep and wake, while no turn is under way. In every other time no connection is open when they start
// anew. The next answer of an engine that has slept tells the new registration of its memory; requests without a conversation ask for one.
func (d *doubting) befall(ctx context.Context, spells []*spell) error {
	if len(spells) == 0 {
		return nil
	}
	d.pins.gate.Lock()
	defer d.pins.gate.Unlock()
	for _, p := range spells {
		for _, instance := range p.at {
			if !testrig.Eventually(func() bool { return instance.Stats().Running == 0 }) {
				return errors.New("an instance works although no turn is under way")
			}
			if p.Alike {
				if p.from%2 == 0 {
					d.hangUp()
				}
				d.storm.restarted(instance)
				instance.Restart()
				continue
			}
			// An engine falls asleep when nothing is pinned any more, and an operator drains it first.
			name := strings.TrimPrefix(instance.URL(), "http://")
			d.storm.deps.Fleet.Drain(upstream.RoleDecode, name, true)
			awake := !within(workedOff, func() bool { return instance.Stats().Pins == 0 })
			d.storm.deps.Fleet.Drain(upstream.RoleDecode, name, false)
			if awake {
				return errors.New("an instance that is drained is not freed of its pins")
			}
			instance.SleepAndWake()
			for n := 0; instance.Stats().Pins == 0 && n < sleptLimit; n++ {
				if err := d.oneShot(ctx, n); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// sleptLimit is how many requests are sent at most until the instance that slept has answered one; they go to the instances in turn.
const sleptLimit = 100

// untold is how many answers may have been cut so that the program does not know of their blocks.
func (d *doubting) untold() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.stranded + d.unknown
}

// blame notes something that must not be.
func (d *doubting) blame(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.faults = append(d.faults, fmt.Sprintf(format, args...))
}

// count adds a turn to the books.
func (d *doubting) count(n int, t *doubted, offered int, hidden bool) {
	if n > 1 {
		d.soak.count(t.answer.reuse(), offered, 0)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stranded += t.record.Retries // a leg that failed may have left blocks
	if hidden {
		d.unknown++
	}
}

// verifyPins asserts that when all unused tickets are released decode pins what the store has tickets for. Blocks of
// legs that a doubt has cut may stay, because the program does not know of them or must not name them again.
func (d *doubting) verifyPins(t *testing.T) {
	t.Helper()
	alive := map[start]*fleet.Incarnation{}
	for _, engine := range d.storm.deps.Fleet.Engines(upstream.RoleDecode) {
		current := engine.Current(t.Context())
		alive[start{engine.Name, current.ID()}] = current
	}
	// Prefill tells decode about blocks after it has answered, or not if it is restarted in between.
	excused := d.uses.failed() + soakAtOne*d.storm.restarts(config.RolePrefill) + d.unknown
	if slices.ContainsFunc(d.storm.kinds, func(kind doubt) bool { return len(kind.Ends) > 0 }) {
		excused += d.stranded
	}
	var pinned, live int
	if !within(workedOff, func() bool {
		pinned, live = d.atDecode("pins"), d.stored.of(alive)
		return live <= pinned && pinned <= live+excused+d.strangers() && d.sum("")["running"] == 0
	}) {
		t.Errorf("decode pins %d answers, want %d to %d: %d tickets in the store, %d legs that may have left some, and %d that no prefill start may release",
			pinned, live, live+excused+d.strangers(), live, excused, d.strangers())
	}
}

// strangers is how many unused tickets wait at decode starts with which no start of prefill has exchanged KV yet: only a turn
// of both could change that, and none follows.
func (d *doubting) strangers() (n int) {
	engines := d.storm.deps.Fleet
	for _, decode := range engines.Engines(upstream.RoleDecode) {
		if !slices.ContainsFunc(engines.Engines(upstream.RolePrefill), func(prefill *fleet.Engine) bool {
			return prefill.Last().PairWith(decode.Last()).Releases()
		}) {
			waiting, _, _ := d.proxy.Server.Pins.Due(decode)
			n += waiting
		}
	}
	return n
}

// verifyDoubts asserts what must hold however doubtful the engines were.
func (d *doubting) verifyDoubts(t *testing.T) {
	t.Helper()
	total := d.sum("")
	zero := append(wrongReads(), "parked")
	if d.storm.restarts(config.RolePrefill)+d.storm.restarts(config.RoleDecode) == 0 {
		zero = append(zero, "stale_reads", "declined_reads", "load_failures")
	}
	for _, name := range zero {
		if total[name] != 0 {
			t.Errorf("%s: got %d, want 0", name, total[name])
		}
	}
	for i, fault := range d.faults {
		if i == 5 {
			t.Errorf("and %d more", len(d.faults)-i)
			break
		}
		t.Error(fault)
	}
	if twice := d.uses.twice(); len(twice) > 0 {
		t.Errorf("the blocks of %d answers were named by more than one leg: %.200v", len(twice), twice)
	}
	d.saidNothing(t)
	if d.tally.hits == 0 && len(d.storm.kinds) > 1 { // of one doubt alone there are few turns
		t.Error("no turn was a hit, so nothing was shown")
	}
}

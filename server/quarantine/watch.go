package quarantine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync/atomic"
	"time"

	"carryover/convcache"
	"carryover/server/events"
	"carryover/server/storetime"
	"carryover/upstream"
	"carryover/upstream/fleet"
	"carryover/upstream/fleet/health"
)

// Every is how often quarantines are exchanged with other replicas, and the time limit of an exchange. No turn waits for it, and a server that begins
// is slow.
const Every = time.Second

// Shared is what replicas share about engines: the epoch, and marks under names that are alike on all replicas. An error costs a delay: the caller
// tries again within a second.
type Shared interface {
	// Mark publishes a value under a name.
	Mark(ctx context.Context, name, value string) error
	// Marks returns the last published values by name.
	Marks(ctx context.Context, names []string) (map[string]string, error)
	// Epoch returns the highest epoch that any answer of the store has shown.
	Epoch() int64
	// ShareEpoch raises the shared epoch to own if it is lower, and otherwise by one if risen.
	ShareEpoch(ctx context.Context, own int64, risen bool) error
}

// Config is what a Watch works with. All but Shared is required.
type Config struct {
	Secret convcache.Secret
	Shared Shared // nil without Redis
	Fleet  *fleet.Fleet
	Tell   func(kind events.Kind, sentence string) // tells operators of an event
	Logger *slog.Logger
}

// Watch knows the epoch and raises it. It shares the epoch, quarantines and drains with other replicas. It is safe for concurrent use, except for
// Compare, which one goroutine uses.
type Watch struct {
	cfg         Config
	Risen       chan struct{} // gets a value when the epoch has risen here; buffers one
	Quarantines atomic.Uint64 // how often Caught was called

	own  atomic.Int64 // the last epoch that began here
	told int64        // the last own epoch that other replicas know
	said int64        // the last epoch that the log mentions
}

// New returns the watch of a fleet.
func New(cfg Config) *Watch { return &Watch{cfg: cfg, Risen: make(chan struct{}, 1)} }

// Compare is one round. The first one runs before the first turn.
func (w *Watch) Compare(ctx context.Context) {
	if w.cfg.Shared != nil {
		if err := w.exchange(ctx); err != nil {
			w.cfg.Logger.Debug("quarantines are not shared", "error", err) // the next round comes soon
		}
	}
	if epoch := w.Now(); epoch != w.said {
		w.said = epoch
		w.cfg.Logger.Warn("a prefill has computed other ids than it was sent: tickets from before are given up, and legs have a cache_salt until their engines are restarted")
	}
}

// Remind has the log mention each quarantined prefill.
func (w *Watch) Remind(context.Context) {
	for _, prefill := range w.cfg.Fleet.Engines(upstream.RolePrefill) {
		if prefill.Quarantined() {
			w.cfg.Logger.Warn("prefill is quarantined; restart it", "prefill", prefill.Name)
		}
	}
}

// errReplica is why another replica's quarantine is taken over.
var errReplica = errors.New("another replica has found that it does not compute the ids that it is sent")

// exchange shares first the epoch and then quarantines and drains, so whoever hears of a quarantine knows of the rise. It takes over other replicas'
// quarantines of living incarnations, and publishes those that they don't know.
func (w *Watch) exchange(ctx context.Context) error {
	ctx, cancel := storetime.Limit(ctx, Every)
	defer cancel()
	own := w.own.Load()
	if err := w.cfg.Shared.ShareEpoch(ctx, w.Now(), own != w.told); err != nil {
		return err
	}
	w.told = own
	engines := slices.Concat(w.cfg.Fleet.Engines(upstream.RoleDecode), w.cfg.Fleet.Engines(upstream.RolePrefill))
	var names []string
	for _, engine := range engines {
		names = append(names, drainMark(engine), quarantineMark(engine.Fresh()))
	}
	marks, err := w.cfg.Shared.Marks(ctx, names)
	if err != nil {
		return err
	}
	for _, engine := range engines {
		w.drain(ctx, engine, marks[drainMark(engine)])
		incarnation := engine.Fresh()
		if engine.Role != upstream.RolePrefill || !incarnation.Known() {
			continue
		}
		name := quarantineMark(incarnation)
		_, shared := marks[name]
		switch local := incarnation.Quarantined(); {
		case shared && !local:
			w.quarantine(incarnation, "", errReplica, "another replica found that it computes other ids than it is sent.")
		case local && !shared:
			err = errors.Join(err, w.cfg.Shared.Mark(ctx, name, ""))
		}
	}
	return err
}

// quarantineMark names an incarnation by its start, port and rank, because replicas may spell a host differently. Starts are in hundredths of a
// second, so two engines with the same are rare; the other one is then quarantined, too.
func quarantineMark(incarnation *fleet.Incarnation) string {
	instance := incarnation.Engine().Instance()
	_, port, _ := net.SplitHostPort(instance.Authority())
	return fmt.Sprint(incarnation.ID(), " ", port, " ", instance.Rank)
}

// drainForm has the moment of a decision, and whether the instance is drained.
const drainForm = "%d %t"

// The last decision of an operator to drain an instance, or to take it back, holds on all replicas. Each replica publishes its own decision if the
// shared one is older or missing, and takes over a later one. So a drain outlives the replica where it began, and an outage of Redis.

// drainMark names an operator's decision about an instance.
func drainMark(engine *fleet.Engine) string {
	return "drain " + engine.Role.String() + " " + engine.Name
}

// drain takes over other replicas' later decision about an instance, or publishes this replica's later one. mark is the shared decision, "" for
// none; what can't be read is older than any decision.
func (w *Watch) drain(ctx context.Context, engine *fleet.Engine, mark string) {
	var shared health.Drain
	_, _ = fmt.Sscanf(mark, drainForm, &shared.At, &shared.On)
	switch own := engine.Health.Drain(); {
	case own.After(shared):
		w.ShareDrain(ctx, engine)
	case shared.After(own):
		w.cfg.Fleet.TakeOver(engine, shared)
		if own.On == shared.On {
			return
		}
		w.cfg.Logger.Info("an operator has drained an instance, or taken it back, on all replicas", "role", engine.Role, "name", engine.Name, "draining", shared.On)
		sentence := "An operator takes %s %s back on all replicas: it gets turns again."
		if shared.On {
			sentence = "An operator drains %s %s on all replicas: it gets no new turns, and its open turns end as usual."
		}
		w.cfg.Tell(events.Drain, fmt.Sprintf(sentence, engine.Role, engine.Name))
	}
}

// ShareDrain tells other replicas an operator's decision about an instance, and reports whether they share it. If not, the next round tries again.
func (w *Watch) ShareDrain(ctx context.Context, engine *fleet.Engine) bool {
	if w.cfg.Shared == nil {
		return false
	}
	ctx, cancel := storetime.Limit(ctx, Every)
	defer cancel()
	decided := engine.Health.Drain()
	return w.cfg.Shared.Mark(ctx, drainMark(engine), fmt.Sprintf(drainForm, decided.At, decided.On)) == nil
}

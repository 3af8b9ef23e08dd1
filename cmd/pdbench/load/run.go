package load

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"carryover/cmd/pdbench/engines"
)

// Clients are the clients of one contender.
type Clients struct {
	Workload Workload
	URL      string        // of the contender
	Direct   *engines.Pair // if not nil, both legs go straight to these engines
	Hides    bool          // the contender shows clients neither params nor token ids
	Begin    func()        // called when the warm-up has ended
	End      func()        // called when the measurement has ended
	Held     func()        // called when all streams of an open workload have had a chunk
}

// The phases of a run. Only the second counts.
const (
	warming = iota
	measured
	over
)

type run struct {
	*Clients
	corpus        []byte        // source of the messages' text
	limit         time.Duration // of a turn
	base          uint64        // first number of a conversation
	conversations atomic.Uint64
	phase         atomic.Int32
	streams, most atomic.Int64 // open now, and at most so far
	wall          time.Duration
	totals        []*tally // of all talks
}

// Limits. A turn, and the end of a run, may take a minute besides the time of their tokens.
const (
	turnLimit  = time.Minute
	drainLimit = time.Minute
	errorPause = 50 * time.Millisecond // before a client tries again
)

// Run runs the workload and returns what clients have seen. The caller adds the hits and faults of the engines, and CPU time and memory. The
// error is ctx's, or says that there is nothing to measure.
func (l *Clients) Run(ctx context.Context) (Outcome, error) {
	w := &l.Workload
	if w.Conversations < 1 || w.Chunks < 2 || w.First < 32 || w.Later[0] < 0 || w.Open && !w.Stream {
		return Outcome{}, fmt.Errorf("workload %q makes no sense", w.Name)
	}
	r := &run{
		Clients: l, corpus: corpus(), limit: turnLimit + 4*w.Gap*time.Duration(w.Chunks),
		base: uint64(time.Now().UnixNano()>>10&(1<<30-1)) << 24,
	}
	measure := r.talkAll
	if w.Open {
		measure = r.openAll
	}
	if err := measure(ctx); err != nil {
		return Outcome{}, err
	}
	return r.outcome(), nil
}

// corpus returns letters and blanks, nothing that JSON escapes, the same text in each run.
func corpus() []byte {
	random := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // the same text is wanted
	text := make([]byte, 256<<10)
	for i := range text {
		if text[i] = 'a' + byte(random.IntN(26)); random.IntN(6) == 0 {
			text[i] = ' '
		}
	}
	return text
}

// talkAll runs the conversations through both phases, each a closed loop: a turn begins when the previous one has ended.
func (r *run) talkAll(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var talking sync.WaitGroup
	for i := range r.Workload.Conversations {
		t := r.newTalk()
		talking.Go(func() {
			defer t.close()
			t.converse(ctx, i)
		})
	}
	err := r.phases(ctx)
	late := time.AfterFunc(drainLimit, cancel) // breaks off turns that take too long
	defer late.Stop()
	talking.Wait()
	return err
}

// phases runs the warm-up and the measurement.
func (r *run) phases(ctx context.Context) error {
	defer r.phase.Store(over)
	if err := wait(ctx, r.Workload.WarmUp); err != nil {
		return err
	}
	r.begins()
	defer r.ends(time.Now())
	return wait(ctx, r.Workload.Time)
}

func (r *run) begins() {
	r.Begin()
	r.phase.Store(measured)
}

func (r *run) ends(began time.Time) {
	r.phase.Store(over)
	r.wall = time.Since(began)
	r.End()
}

func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// converse runs turns until the measurement has ended. The first conversation of each client is shortened by another number of turns, so that
// conversations have all lengths at any time.
func (t *talk) converse(ctx context.Context, client int) {
	w := &t.run.Workload
	longest := max(1, w.Turns)
	t.beginConversation(1 + client%longest)
	for t.run.phase.Load() != over && ctx.Err() == nil {
		if t.left == 0 {
			t.beginConversation(longest)
		}
		err := t.turn(ctx)
		if err == nil {
			continue
		}
		t.close()
		if ctx.Err() != nil || errors.Is(err, context.Canceled) {
			return
		}
		t.failed(err, t.run.measuring())
		t.left = 0
		if wait(ctx, errorPause) != nil {
			return
		}
	}
}

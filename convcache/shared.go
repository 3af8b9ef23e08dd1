package convcache

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Shared gives every ticket one home: the store of all replicas, or this process' memory if that store certainly does not have the ticket,
// because it does not work or the ticket is too large. All methods are safe for concurrent use.
//
//   - No ticket is in both homes, because then it could be taken in both. A put to one home displaces and outdates nothing in the other;
//     such branches end at their deadlines.
//   - An operation without an answer is not repeated: the ticket is lost.
//   - Nothing is sent while the breaker is open (health.go).
type Shared struct {
	remote  Remote
	home    *Memory // tickets that the remote store certainly does not have
	breaker *breaker
	now     func() time.Time
	logger  *slog.Logger
	report  func(sentence string)
	count   remoteCount
	state   atomic.Int32          // a RemoteState
	failure atomic.Pointer[error] // the last failure of an operation or test
}

// SharedConfig configures a Shared.
type SharedConfig struct {
	// Local bounds the tickets in this process, and has the clock for all of Shared.
	Local MemoryConfig
	// Logger gets a line when the remote store stops or starts to work. Lines call it redis, because operators run that.
	Logger *slog.Logger
	// Tell gets the same as one sentence.
	Tell func(sentence string)
}

// NewShared returns a store on top of remote. Check tests remote; Run must run.
func NewShared(remote Remote, cfg SharedConfig) *Shared {
	if cfg.Local.Now == nil {
		cfg.Local.Now = time.Now
	}
	now := cfg.Local.Now
	return &Shared{remote: remote, home: NewMemory(cfg.Local), breaker: newBreaker(now), now: now, logger: cfg.Logger, report: cfg.Tell}
}

// Peek returns usable branches of the first [MaxKeys] keys, in the order of the keys: of each key this process' branches first, and the
// newest of a home first. The outcome is Found, even if not every key was read; Expired if all branches have expired; Empty if there are
// none; Unavailable if that is unknown. A branch may turn out to be Fenced.
func (s *Shared) Peek(ctx context.Context, keys []Key) ([]KeyedBranch, Outcome) {
	branches, local := s.home.Peek(ctx, keys)
	if local == Unavailable || !s.breaker.allows() {
		return branches, found(branches, Unavailable)
	}
	shared, outcome, err := s.remote.Peek(ctx, keys)
	s.note(err)
	switch {
	case err != nil:
		outcome = Unavailable
	case outcome == Empty:
		outcome = local
	}
	branches = merged(keys, branches, shared)
	return branches, found(branches, outcome)
}

// merged keeps the order of the keys, and within a key the branches of first before second.
func merged(keys []Key, first, second []KeyedBranch) []KeyedBranch {
	both := append(first, second...)
	if len(keys) > 1 && len(first) > 0 && len(second) > 0 {
		slices.SortStableFunc(both, func(a, b KeyedBranch) int { return slices.Index(keys, a.Key) - slices.Index(keys, b.Key) })
	}
	return both
}

func found(branches []KeyedBranch, otherwise Outcome) Outcome {
	if len(branches) > 0 {
		return Found
	}
	return otherwise
}

// Take removes exactly this ticket and returns Taken. Otherwise the ticket is gone: Consumed if it was not there or not authentic, Expired if
// its deadline had passed, Fenced if another master may have given it away. After Unavailable it counts as lost, too.
func (s *Shared) Take(ctx context.Context, key Key, id TicketID) (Ticket, Outcome) {
	if t, outcome := s.home.Take(ctx, key, id); outcome != Consumed {
		return t, outcome
	}
	if !s.breaker.allows() {
		return Ticket{}, Unavailable
	}
	t, outcome, err := s.remote.Take(ctx, key, id)
	s.note(err)
	if err != nil {
		return Ticket{}, Unavailable
	}
	return t, outcome
}

// Put stores the ticket as the newest branch for ttl, or until its own deadline if that is sooner, and returns Stored. The caller has made
// or taken the ticket, and puts it once. The displaced tickets belong to the caller, as if taken: contained branches, and the oldest of five.
//
// A ticket that the remote store certainly does not have stays in this process, invisible to other replicas. Nothing is stored after Expired
// (no time left), Refused (too large for this process, too), Superseded (see Memory) and NotStored (ctx had ended). After Unavailable the
// ticket may be stored: the caller must not use it, and other replicas may.
func (s *Shared) Put(ctx context.Context, key Key, t Ticket, ttl time.Duration) ([]Ticket, Outcome) {
	if ctx.Err() != nil {
		return nil, NotStored
	}
	now := s.now()
	t.Deadline = deadlineOf(&t, now, ttl)
	if left(t.Deadline, now) <= 0 {
		return nil, Expired
	}
	if !s.breaker.allows() {
		return s.putHome(ctx, key, t, ttl)
	}
	displaced, outcome, err := s.remote.Put(ctx, key, t)
	s.note(err)
	switch {
	case told(err).Unapplied:
		return s.putHome(ctx, key, t, ttl)
	case err != nil:
		return nil, Unavailable
	}
	return displaced, outcome
}

// putHome works even if ctx has ended meanwhile.
func (s *Shared) putHome(ctx context.Context, key Key, t Ticket, ttl time.Duration) ([]Ticket, Outcome) {
	return s.home.Put(context.WithoutCancel(ctx), key, t, ttl)
}

// EvictStale removes expired tickets from this process, and returns the number of conversations that it removed.
func (s *Shared) EvictStale() int { return s.home.EvictStale() }

var errNotAsked = errors.New("redis does not work, and is not asked until a test succeeds")

// Mark publishes a value for all replicas. After an error it may not be stored. While the breaker is open, the error comes at once.
func (s *Shared) Mark(ctx context.Context, name, value string) error {
	return s.tell("mark an engine", func() error { return s.remote.Mark(ctx, name, value) })
}

// Marks returns the last published values by name. An error means that nothing is known; errors are as in Mark.
func (s *Shared) Marks(ctx context.Context, names []string) (map[string]string, error) {
	if len(names) == 0 {
		return nil, nil
	}
	return ask(s, "look up marks of engines", func() (map[string]string, error) { return s.remote.Marks(ctx, names) })
}

// Epoch returns the highest epoch of the fleet in an answer of the remote store.
func (s *Shared) Epoch() int64 { return s.remote.Epoch() }

// ShareEpoch raises the remote store's epoch to own if it is lower, else by one if risen; Epoch returns it afterwards. Errors are as in Mark.
func (s *Shared) ShareEpoch(ctx context.Context, own int64, risen bool) error {
	return s.tell("share the epoch", func() error { return s.remote.ShareEpoch(ctx, own, risen) })
}

// SharePinned publishes how many tokens this replica pins on an incarnation of decode, and returns the numbers that other replicas published
// within PinnedLife. Errors are as in Mark.
func (s *Shared) SharePinned(ctx context.Context, incarnation string, tokens int) ([]int, error) {
	return ask(s, "share pinned tokens", func() ([]int, error) { return s.remote.SharePinned(ctx, incarnation, tokens) })
}

func ask[T any](s *Shared, what string, remote func() (T, error)) (told T, err error) {
	if err = errNotAsked; s.breaker.allows() {
		told, err = remote()
		s.note(err)
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", what, err)
	}
	return told, err
}

func (s *Shared) tell(what string, remote func() error) error {
	_, err := ask(s, what, func() (struct{}, error) { return struct{}{}, remote() })
	return err
}

func (s *Shared) note(err error) {
	switch shows := told(err).Shows; {
	case err == nil || shows == ShowsAnswer:
		s.breaker.record(true)
	case shows == ShowsFailure:
		s.failed(err)
		s.breaker.record(false)
	}
}

// failed keeps the last failure for the log line of Run.
func (s *Shared) failed(err error) {
	s.failure.Store(&err)
	s.logger.Debug("redis operation failed", "error", err)
}

// Times of counts: how long one holds, how long a caller waits, and the limit. Redis needs about 0.3 s for a million keys.
const (
	countEvery   = 10 * time.Second
	countWait    = 100 * time.Millisecond
	countTimeout = 5 * time.Second
)

type remoteCount struct {
	mu    sync.Mutex // guards what follows
	began time.Time  // of the last count
	value int
	under chan struct{} // closed at the end of the running count; nil if none runs
}

// Len returns the number of shared conversations, at most 10 s old, plus this process' own. Those with only a note count. It returns the
// last count if the remote store does not answer in time.
func (s *Shared) Len() int {
	if under := s.recount(); under != nil {
		select {
		case <-under:
		case <-time.After(countWait):
		}
	}
	s.count.mu.Lock()
	defer s.count.mu.Unlock()
	return s.count.value + s.home.Len()
}

// recount returns the running count, and starts one if the last is too old. It ends after countTimeout, or when the store is closed.
func (s *Shared) recount() <-chan struct{} {
	c := &s.count
	c.mu.Lock()
	defer c.mu.Unlock()
	now := s.now()
	if c.under != nil || !s.breaker.allows() || !c.began.IsZero() && now.Sub(c.began) < countEvery {
		return c.under
	}
	under := make(chan struct{})
	c.began, c.under = now, under
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), countTimeout)
		defer cancel()
		n, err := s.remote.Count(ctx)
		c.mu.Lock()
		defer c.mu.Unlock()
		if err == nil {
			c.value = n
		}
		c.under = nil
		close(under)
	}()
	return under
}

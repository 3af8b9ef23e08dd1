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

// Shared gives every ticket one home: the store that replicas share, or this process' memory if that store certainly
// does not have the ticket. All methods are safe for concurrent use.
//
//   - A ticket is in the remote store. If it is too large, or while the store is known not to work, it is in this
//     process. It is never in both, because then it could be taken in both. A put to one home displaces nothing in the
//     other, and a branch in one home outdates no note in the other; such branches end at their deadlines.
//   - An operation without an answer is not repeated, here or elsewhere: the ticket is lost.
//   - No operation is sent while the breaker is open (health.go). Results of operations and tests open it. A test of
//     the store, for which no turn waits, closes it.
type Shared struct {
	remote  Remote
	home    *Memory // of tickets that the remote store certainly has not
	breaker *breaker
	now     func() time.Time
	logger  *slog.Logger
	report  func(sentence string)
	count   remoteCount
	state   atomic.Int32          // a RemoteState
	failure atomic.Pointer[error] // of the last operation or test that failed
}

// SharedConfig configures a Shared.
type SharedConfig struct {
	// Local bounds the tickets in this process, and has the clock for all of Shared.
	Local MemoryConfig
	// Logger is told when the remote store stops or starts to work. Its lines call the store redis, which is what operators run.
	Logger *slog.Logger
	// Tell is told the same as one sentence.
	Tell func(sentence string)
}

// NewShared returns a store that shares tickets through remote. Check says whether remote works; Run must run
// meanwhile.
func NewShared(remote Remote, cfg SharedConfig) *Shared {
	if cfg.Local.Now == nil {
		cfg.Local.Now = time.Now
	}
	now := cfg.Local.Now
	return &Shared{remote: remote, home: NewMemory(cfg.Local), breaker: newBreaker(now), now: now, logger: cfg.Logger, report: cfg.Tell}
}

// Peek returns the usable branches of at most [MaxKeys] different keys, those of the first key first, and Found; Expired
// if no branch is usable and a key has tickets past their deadline; Empty if no key has any; Unavailable if that is not
// known. Of a key it returns the branches of this process first, and the newest of each home first. Keys beyond MaxKeys
// are not looked up. A branch that it returns may turn out to be Fenced. Found does not say that every key was read.
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

// merged returns the branches of two homes in the order of the keys, those of the first home first.
func merged(keys []Key, first, second []KeyedBranch) []KeyedBranch {
	both := append(first, second...)
	if len(keys) > 1 && len(first) > 0 && len(second) > 0 {
		slices.SortStableFunc(both, func(a, b KeyedBranch) int { return slices.Index(keys, a.Key) - slices.Index(keys, b.Key) })
	}
	return both
}

// found returns Found if there is a branch, else otherwise.
func found(branches []KeyedBranch, otherwise Outcome) Outcome {
	if len(branches) > 0 {
		return Found
	}
	return otherwise
}

// Take removes exactly the named ticket and returns it with Taken. Otherwise the ticket is gone: Consumed if it was
// not there any more or not authentic, Expired if its deadline had passed, Fenced if another master may have given it
// away. After Unavailable it may be gone as well, and counts as lost.
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

// Put keeps the ticket for ttl, or until the deadline that it already carries if that is sooner, as the
// newest branch of the conversation, and returns Stored. The ticket is one that the caller has made or taken,
// and puts once; one of the same id in the same home is replaced. What it removed is the caller's, as if taken:
// branches whose chain is contained in the ticket's, and the oldest of five.
//
// A ticket that the remote store has certainly not taken stays in this process, and other replicas do not see it.
// Nothing is stored when Put returns Expired (no time left), Refused (too large for this process too), Superseded (a
// note that is of no use where it would be, as for Memory) or NotStored (ctx had ended before anything was sent). After
// Unavailable the ticket may have been stored: the caller must not use it, and other replicas may.
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
	case unapplied(err):
		return s.putHome(ctx, key, t, ttl)
	case err != nil:
		return nil, Unavailable
	}
	return displaced, outcome
}

// putHome keeps in this process a ticket that was certainly not stored remotely, even if ctx has ended meanwhile.
func (s *Shared) putHome(ctx context.Context, key Key, t Ticket, ttl time.Duration) ([]Ticket, Outcome) {
	return s.home.Put(context.WithoutCancel(ctx), key, t, ttl)
}

// EvictStale removes expired tickets from this process and returns how many conversations went with them. The remote
// store removes its own.
func (s *Shared) EvictStale() int { return s.home.EvictStale() }

// errNotAsked says that the breaker is open.
var errNotAsked = errors.New("redis does not do what is needed, and is not asked")

// Mark publishes a value under a name for all replicas. After an error it may not be stored; the error contains no
// credential. While the remote store is known not to work, the error comes at once.
func (s *Shared) Mark(ctx context.Context, name, value string) error {
	return s.tell("mark an engine", func() error { return s.remote.Mark(ctx, name, value) })
}

// Marks returns the values that any replica has published last, by name. An error means that nothing is known; errors
// are as in Mark.
func (s *Shared) Marks(ctx context.Context, names []string) (map[string]string, error) {
	if len(names) == 0 {
		return nil, nil
	}
	return ask(s, "look marks of engines up", func() (map[string]string, error) { return s.remote.Marks(ctx, names) })
}

// Epoch returns the highest epoch of the fleet that an answer of the remote store has shown.
func (s *Shared) Epoch() int64 { return s.remote.Epoch() }

// ShareEpoch raises the remote store's epoch to own if it is lower, and otherwise by one if risen. Epoch shows what it
// is then. Errors are as in Mark.
func (s *Shared) ShareEpoch(ctx context.Context, own int64, risen bool) error {
	return s.tell("share the epoch", func() error { return s.remote.ShareEpoch(ctx, own, risen) })
}

// SharePinned tells other replicas how many tokens this one pins on an incarnation of decode, and returns what each of
// those pins there that have told within PinnedLife. Errors are as in Mark.
func (s *Shared) SharePinned(ctx context.Context, incarnation string, tokens int) ([]int, error) {
	return ask(s, "share pinned tokens", func() ([]int, error) { return s.remote.SharePinned(ctx, incarnation, tokens) })
}

// ask asks the remote store, unless that is known not to work.
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

// tell is ask where nothing is returned.
func (s *Shared) tell(what string, remote func() error) error {
	_, err := ask(s, what, func() (struct{}, error) { return struct{}{}, remote() })
	return err
}

// note reports the result of an operation to the breaker.
func (s *Shared) note(err error) {
	switch shownBy(err) {
	case ShowsNothing:
	case ShowsAnswer:
		s.breaker.record(true)
	case ShowsFailure:
		s.failed(err)
		s.breaker.record(false)
	}
}

// failed remembers the last failure, for the log line if it persists.
func (s *Shared) failed(err error) {
	s.failure.Store(&err)
	s.logger.Debug("redis operation failed", "error", err)
}

// How long a count of the remote conversations is used, how long a caller waits for a new one, and how long counting
// may take: Redis needs about 0.3 s for a million keys.
const (
	countEvery   = 10 * time.Second
	countWait    = 100 * time.Millisecond
	countTimeout = 5 * time.Second
)

// remoteCount is the last count of the remote conversations.
type remoteCount struct {
	mu    sync.Mutex // guards what follows
	began time.Time  // of the last count
	value int
	under chan struct{} // closed when the count under way has ended; nil if there is none
}

// Len returns the number of conversations that the replicas share, counted at most every 10 s, plus those of this
// process alone. Conversations with only a note are included. If the remote store does not answer in time, the last
// count is used.
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

// recount returns the count that is under way, after starting one if the last is too old. A count ends after
// countTimeout, or when the remote store is closed.
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

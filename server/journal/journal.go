// Package journal keeps the last turns for operators: their records, in order and by conversation, and totals of all turns since the
// start. It observes turns (record.Observer). It promises:
//
//   - It holds no prompts, answers, plain ids, credentials or texts of engines, so all of it may be shown.
//   - Its memory is bounded, whatever clients send.
//   - Observe takes a lock for some microseconds at most, and never waits for a reader.
package journal

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"carryover/server/record"
)

// Config bounds a journal. The zero value gets the defaults.
type Config struct {
	Now   func() time.Time // time.Now if nil
	Turns int              // records kept; 4,096 by default: 2.5 MB, and 5.7 MB with names at their longest
}

// Journal keeps the last turns. It is safe for concurrent use.
type Journal struct {
	ring  []atomic.Pointer[entry] // the record of turn n is at n modulo its length
	turns atomic.Uint64           // turns observed, raised when the record is in the ring

	mu     sync.Mutex // guards totals and minutes, and orders writes to the ring
	totals Totals

	now     func() time.Time
	minutes minutes
}

// entry never changes, so readers need no lock and no turn waits for them.
type entry struct {
	n uint64
	TurnRecord
	id [8]byte // hash of the client's id
}

// New returns an empty journal.
func New(cfg Config) *Journal {
	cfg.Turns = cmp.Or(cfg.Turns, 4096)
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Journal{ring: make([]atomic.Pointer[entry], cfg.Turns), totals: newTotals(cfg.Now()), now: cfg.Now}
}

// Observe records a turn that has ended. It is a record.Observer.
func (j *Journal) Observe(r *record.Turn) {
	e := &entry{TurnRecord: turnRecordOf(r), id: r.ID}
	j.mu.Lock()
	defer j.mu.Unlock()
	e.n = j.turns.Load()
	j.ring[e.n%uint64(len(j.ring))].Store(e)
	j.turns.Store(e.n + 1)
	j.totals.add(&e.TurnRecord, r)
	j.minutes.add(j.now(), &e.TurnRecord, r)
}

// Recent returns at most this many records that all of wants accept, newest first.
func (j *Journal) Recent(most int, wants ...func(*TurnRecord) bool) []TurnRecord {
	return j.pick(most, func(e *entry) bool {
		return !slices.ContainsFunc(wants, func(want func(*TurnRecord) bool) bool { return !want(&e.TurnRecord) })
	})
}

// Conversation returns the records of a conversation, named as in the log, newest first.
func (j *Journal) Conversation(hash string) []TurnRecord {
	return j.pick(len(j.ring), func(e *entry) bool { return hash != "" && e.Conversation == hash })
}

func (j *Journal) pick(most int, want func(*entry) bool) []TurnRecord {
	picked := []TurnRecord{}
	turns := j.turns.Load()
	for back := uint64(1); back <= min(turns, uint64(len(j.ring))) && len(picked) < most; back++ {
		e := j.ring[(turns-back)%uint64(len(j.ring))].Load()
		if e.n != turns-back { // a newer record has replaced it and all older ones
			break
		}
		if want(e) {
			picked = append(picked, e.TurnRecord)
		}
	}
	return picked
}

// Numbered is a turn record with its place, from 1, in the order in which turns ended.
type Numbered struct {
	Number uint64 `json:"n"`
	TurnRecord
}

// Since returns the records after this number, oldest first, and the totals of the same moment. If there are more than most, it returns the
// newest. The newest record's number is the number of all turns. It copies under the lock, and only what it returns.
func (j *Journal) Since(number uint64, most int) ([]Numbered, Totals) {
	j.mu.Lock()
	defer j.mu.Unlock()
	turns := j.turns.Load()
	oldest := turns - min(turns, uint64(len(j.ring)), uint64(max(most, 0)))
	since := []Numbered{}
	for n := max(oldest, number); n < turns; n++ {
		since = append(since, Numbered{n + 1, j.ring[n%uint64(len(j.ring))].Load().TurnRecord})
	}
	return since, j.totals.clone()
}

// Named is a conversation whose turns had a client's id.
type Named struct {
	Conversation string    `json:"conversation"` // as in the log
	Model        string    `json:"model,omitempty"`
	Turns        int       `json:"turns"` // of the kept ones
	Last         time.Time `json:"last"`  // when the newest of them began
}

const maxNamed = 100

// Named returns the conversations with this keyed hash of a client's id, the newest first. There are several if tenants, models or
// sub-agents share an id.
func (j *Journal) Named(id [8]byte) []Named {
	named, at := []Named{}, map[string]int{}
	for _, r := range j.pick(len(j.ring), func(e *entry) bool { return e.id == id && e.id != [8]byte{} && e.Conversation != "" }) {
		i, known := at[r.Conversation]
		if !known {
			if len(named) == maxNamed {
				continue
			}
			i = len(named)
			at[r.Conversation] = i
			named = append(named, Named{Conversation: r.Conversation, Model: r.Model, Last: r.Began})
		}
		named[i].Turns++
	}
	return named
}

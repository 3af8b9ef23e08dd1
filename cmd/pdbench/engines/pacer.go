package engines

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// pacer writes the tokens of all streams that pause between tokens. One goroutine and one timer serve all of them, so that a token costs
// neither a timer nor a goroutine switch. It never waits for a reader: it tries again what does not fit into a socket.
//
// Tokens come as from decode instances: each makes one token for all of its streams in the same step, and writes them one after the other. So
// the pattern is the same for each contender. If a stream's steps began with the stream, a contender that begins streams slowly would spread
// them. Each chunk would then cost it a wake-up that others share.
type pacer struct {
	now   func() time.Time
	began atomic.Int64 // streams so far; spreads them over instances

	mu    sync.Mutex // guards the rest
	wheel [wheelSlots][]*stream
	done  int64 // the last slot of time that was processed
	size  int   // streams in the wheel
	wake  chan struct{}
}

// The wheel has a slot for each millisecond, so a chunk is late by one millisecond at most. It turns in four seconds.
const (
	wheelSlots = 1 << 12
	slotTime   = time.Millisecond
	longestGap = (wheelSlots - 2) * slotTime
)

type pacing struct {
	socket syscall.RawConn
	pace   *Pace
	due    time.Time
	unsent []byte        // rest of the last write
	done   chan struct{} // closed after the last write
	over   atomic.Bool
	last   atomic.Bool               // the last write has begun
	try    func(socket uintptr) bool // writes unsent without waiting, made once
	wrote  int
	failed error
}

// pace gives a stream to the pacer; its next token is due after its gap.
func (p *pacer) pace(s *stream) {
	s.try = func(socket uintptr) bool {
		s.wrote, s.failed = syscall.Write(int(socket), s.unsent)
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now()
	if p.size == 0 {
		p.done = slotOf(now)
		select {
		case p.wake <- struct{}{}:
		default: // it is awake
		}
	}
	p.size++
	p.put(s, s.pace.stepAfter(now, p.began.Add(1)))
}

// stepAfter returns when an instance makes its next token. The steps of the instances are spread evenly.
func (p *Pace) stepAfter(now time.Time, instance int64) time.Time {
	of := max(int64(p.Instances), 1)
	offset := p.Gap * time.Duration(instance%of) / time.Duration(of)
	return now.Add(-offset).Truncate(p.Gap).Add(offset + p.Gap)
}

func slotOf(t time.Time) int64 { return t.UnixNano() / int64(slotTime) }

// put puts a stream into the wheel. The caller holds p.mu.
func (p *pacer) put(s *stream, due time.Time) {
	s.due = due
	slot := &p.wheel[max(slotOf(due), p.done+1)%wheelSlots]
	*slot = append(*slot, s)
}

func (p *pacer) run(ctx context.Context) {
	ticker := time.NewTicker(slotTime)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if p.turn() {
			continue
		}
		ticker.Stop()
		select {
		case <-ctx.Done():
			return
		case <-p.wake:
			ticker.Reset(slotTime)
		}
	}
}

// turn writes what is due, and reports whether a stream is left.
func (p *pacer) turn() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	// Without streams there is nothing to catch up with: the first stream sets the place of the wheel.
	for until := slotOf(p.now()); p.size > 0 && p.done < until; {
		p.done++
		slot := &p.wheel[p.done%wheelSlots]
		list := *slot
		*slot = nil
		p.mu.Unlock()
		left := list[:0]
		for _, s := range list {
			began := time.Now()
			if s.advance() {
				left = append(left, s)
			}
			// So short a sleep takes up to twice as long, and an API server is just as busy.
			for time.Since(began) < s.pace.Apart {
			}
		}
		p.mu.Lock()
		p.size -= len(list) - len(left)
		for _, s := range left {
			p.put(s, s.due.Add(s.pace.Gap))
		}
		if len(*slot) == 0 {
			clear(list[:cap(list)])
			*slot = list[:0]
		}
	}
	return p.size > 0
}

// advance writes what is due of a stream, and reports whether the stream goes on.
func (s *stream) advance() bool {
	for !s.over.Load() {
		if len(s.unsent) == 0 {
			s.unsent = s.next()
		}
		s.last.Store(!s.more())
		for len(s.unsent) > 0 {
			err := s.socket.Write(s.try)
			switch {
			case err != nil || s.failed != nil && !errors.Is(s.failed, syscall.EAGAIN) && !errors.Is(s.failed, syscall.EINTR):
				s.end(true)
				return false
			case s.failed != nil:
				return true // the reader is slow; the next turn tries again
			}
			s.unsent = s.unsent[s.wrote:]
		}
		if !s.more() {
			s.end(false)
			return false
		}
		if s.waits() {
			return true
		}
	}
	return false
}

// end ends a stream once, whether writer or reader sees the end first.
func (s *stream) end(aborted bool) {
	if s.over.CompareAndSwap(false, true) {
		s.engine.ledger.end(aborted)
		close(s.done)
	}
}

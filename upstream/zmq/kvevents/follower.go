package kvevents

import (
	"errors"
	"hash/maphash"
	"log/slog"
	"time"
)

// replay requests the batches from a number on and calls each for every batch. An error of each ends the replay.
type replay func(from uint64, each func(seq uint64, payload []byte) error) error

// retryReplay is how long a failed replay endpoint is not asked again, unless the connection breaks before.
const retryReplay = 30 * time.Second

var (
	errGap   = errors.New("the replay does not reach back far enough")
	errOther = errors.New("the publisher has changed")
)

// follower puts the batches of one publisher in order. It belongs to one goroutine.
type follower struct {
	sink   Sink
	replay replay // nil without a replay endpoint
	log    *slog.Logger
	now    func() time.Time

	decoder decoder
	seed    maphash.Seed

	known bool   // next is valid
	next  uint64 // number of the next batch
	last  uint64 // hash of the batch before

	heard      bool      // the connection has brought a batch
	latest     uint64    // number of the last batch on the connection
	failed     time.Time // when a replay failed, zero if the last one did not
	unreadable bool      // an unreadable batch was logged
}

// up begins a connection. It does not bring batches that were published before the publisher had read the subscription.
func (f *follower) up() {
	f.heard, f.failed = false, time.Time{}
	switch {
	case f.replay == nil && f.known:
		f.lose("the connection broke, and there is no replay endpoint")
		f.known = false
	case f.replay != nil && f.known && f.next > 0:
		if err := f.resume(); err != nil {
			f.lose(err.Error())
			f.begin()
		}
	case f.replay != nil:
		f.begin()
	}
}

// resume continues after the last batch, if the publisher's batch of that number is the same.
func (f *follower) resume() error {
	shown, want := false, f.last
	err := f.ask(f.next-1, func(seq uint64, payload []byte) error {
		if shown {
			return f.follow(seq, payload)
		}
		if seq != f.next-1 || f.hash(payload) != want {
			return errOther
		}
		shown = true
		return nil
	})
	if err == nil && !shown {
		return errOther
	}
	return err
}

func (f *follower) begin() {
	f.known = false
	err := f.ask(0, func(seq uint64, payload []byte) error {
		if !f.known {
			f.join(seq)
		}
		return f.follow(seq, payload)
	})
	switch {
	case err != nil:
		f.lose(err.Error())
		f.known = false
	case !f.known:
		f.join(0) // nothing has been published yet
	}
}

func (f *follower) join(seq uint64) {
	f.known, f.next = true, seq
	if seq == 0 {
		f.sink.Started()
	} else {
		f.lose("the beginning is not replayed any more")
	}
}

func (f *follower) follow(seq uint64, payload []byte) error {
	if seq != f.next {
		return errGap
	}
	f.take(seq, payload)
	return nil
}

func (f *follower) batch(seq uint64, payload []byte) {
	if f.heard && seq <= f.latest {
		f.lose("the publisher counts anew")
		f.known = false
	}
	f.heard, f.latest = true, seq
	switch {
	case !f.known && seq == 0:
		f.join(seq)
	case (!f.known || !f.failed.IsZero()) && f.mayAsk(): // also to repair what could not be replayed before
		f.begin()
	case f.known && seq > f.next:
		f.fill(seq)
	}
	if !f.known {
		f.join(seq)
	}
	switch {
	case seq < f.next: // a replay has delivered it
	case seq > f.next:
		f.lose(errGap.Error())
		f.next = seq
		fallthrough
	default:
		f.take(seq, payload)
	}
}

func (f *follower) fill(seq uint64) {
	if !f.mayAsk() {
		return
	}
	if err := f.ask(f.next, f.follow); err != nil {
		f.log.Debug("a gap in the KV events can't be filled", "from", f.next, "to", seq, "error", err)
	}
}

func (f *follower) take(seq uint64, payload []byte) {
	f.next, f.last = seq+1, f.hash(payload)
	if err := f.decoder.batch(payload, f.sink); err != nil {
		if !f.unreadable {
			f.log.Warn("KV events can't be read; the content of the engine's prefix cache is not known", "number", seq, "bytes", len(payload), "error", err)
		}
		f.unreadable = true
		f.sink.Lost()
	}
}

func (f *follower) hash(payload []byte) uint64 { return maphash.Bytes(f.seed, payload) }

func (f *follower) mayAsk() bool {
	return f.replay != nil && (f.failed.IsZero() || f.now().Sub(f.failed) >= retryReplay)
}

func (f *follower) ask(from uint64, each func(uint64, []byte) error) error {
	err := f.replay(from, each)
	f.failed = time.Time{}
	if err != nil && !errors.Is(err, errGap) && !errors.Is(err, errOther) {
		f.failed = f.now()
	}
	return err
}

func (f *follower) lose(why string) {
	f.log.Debug("KV events are missing; the content of the engine's prefix cache is not known", "why", why)
	f.sink.Lost()
}

package main

import (
	"context"
	"testing"
	"time"
)

// pinSamples compares, every second of a soak, the pinned tokens that the program tells with those that decode engines hold.
type pinSamples struct {
	rig       *rig
	blockSize int
	atOne     int           // turns at a time
	cut       func() int    // answers that the program may not know of
	open      func() int    // tokens that may be free already, until a release settles that
	stop      func()        // ends it
	done      chan struct{} // closed when it has ended
	expired   []int         // of the last samples, the pins that TTLs had ended
	taken     int           // samples
	worst     [2]int        // most that was told too much, and too little
	wrong     []pinDifference
}

// pinDifference is a sample beyond what is in flight.
type pinDifference struct{ told, held, allowed int }

// expirySamples is how many samples a pin that has ended by its TTL may still be told: the program counts TTLs in hundredths.
const expirySamples = 10

// samplePins begins. cut and open are nil where there is nothing of the kind.
func samplePins(t *testing.T, r *rig, blockSize, atOne int, cut, open func() int) *pinSamples {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	s := &pinSamples{rig: r, blockSize: blockSize, atOne: atOne, cut: cut, open: open, stop: stop, done: make(chan struct{})}
	go func() {
		defer close(s.done)
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				s.take(t)
			}
		}
	}()
	return s
}

// take takes one sample. Each turn under way may have a ticket on its leg, and an answer that is not put yet, of which the largest have
// some times the tokens of the mean.
func (s *pinSamples) take(t *testing.T) {
	told, held := s.rig.pinnedTokens(t, s.blockSize)
	decode := s.rig.sum(t, roleDecode)
	s.taken++
	s.expired = append(s.expired, decode["ttl_expired"])
	if len(s.expired) > expirySamples {
		s.expired = s.expired[1:]
	}
	largest := 4 * (held/max(1, decode["pins"]) + s.blockSize)
	allowed := largest * (2*s.atOne + s.expired[len(s.expired)-1] - s.expired[0])
	more, less := allowed, allowed
	if s.cut != nil {
		less += s.cut() * largest
	}
	if s.open != nil {
		more += s.open()
	}
	s.worst[0], s.worst[1] = max(s.worst[0], told-held), max(s.worst[1], held-told)
	if told-held > more || held-told > less {
		s.wrong = append(s.wrong, pinDifference{told, held, allowed})
	}
}

// end ends it, and reports what was seen.
func (s *pinSamples) end(t *testing.T) {
	t.Helper()
	s.stop()
	<-s.done
	if len(s.wrong) > 0 {
		t.Errorf("pinned tokens told, held and allowed between: %v of %d samples differ by more than is in flight, the first %+v", len(s.wrong), s.taken, s.wrong[0])
	}
	t.Logf("%d samples of pinned tokens: at most %d told too much, %d too little", s.taken, s.worst[0], s.worst[1])
}

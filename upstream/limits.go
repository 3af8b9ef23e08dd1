package upstream

import "time"

// Only a read that waits for the engine can be idle; a client that takes its bytes slowly has a limit of its own. To
// reset and stop a timer costs 0.15 µs per read, to store a time 0.04. So the timer of a stream is left to fire, and
// is then set again for as long as the current read may still wait.

// waits records that a read begins; 0 is stored when it has returned.
func (s *Stream) waits() { s.waiting.Store(max(1, int64(time.Since(s.began)))) }

// begins ends the limit for the first byte.
func (s *Stream) begins() {
	s.arming.Lock()
	defer s.arming.Unlock()
	if s.abandoned.Load() == nil && !s.closed {
		s.timer.Reset(s.idle)
	}
}

// due ends the leg if a limit has passed, and else sets the timer for the time when one may.
func (s *Stream) due() {
	s.arming.Lock()
	defer s.arming.Unlock()
	switch cause := s.abandoned.Load(); {
	case s.closed:
	case cause != nil:
		if left := time.Until(s.until); left > 0 { // the client left at this moment
			s.timer.Reset(left)
			return
		}
		s.cancel(*cause)
	case !s.answered.Load():
		s.cancel(ErrFirstByteTimeout)
	default:
		left := s.idle
		if since := s.waiting.Load(); since > 0 {
			left -= time.Since(s.began) - time.Duration(since)
		}
		if left <= 0 {
			s.cancel(ErrIdleTimeout)
			return
		}
		s.timer.Reset(left)
	}
}

// abandon ends the leg with a cause because its client has gone: at once if decode has begun to answer, else when
// decode begins, or after limit. An answer that is spared gets all of limit.
func (s *Stream) abandon(cause error, limit time.Duration) {
	s.arming.Lock()
	s.abandoned.Store(&cause)
	s.until = time.Now().Add(limit)
	if !s.closed {
		s.timer.Reset(limit)
	}
	s.arming.Unlock()
	if s.answered.Load() && !s.spared.Load() {
		s.cancel(cause)
	}
}

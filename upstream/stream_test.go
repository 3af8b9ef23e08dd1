package upstream

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"
)

// script is a body that waits before each of its reads, and fails when the leg
// ends, as a response body does.
type script struct {
	ctx   context.Context
	waits []time.Duration
}

func (s *script) Read(p []byte) (int, error) {
	if len(s.waits) == 0 {
		return 0, io.EOF
	}
	wait := s.waits[0]
	s.waits = s.waits[1:]
	select {
	case <-time.After(wait):
		p[0] = 'x'
		return 1, nil
	case <-s.ctx.Done():
		return 0, s.ctx.Err()
	}
}

func (s *script) Close() error { return nil }

func open(t *testing.T, firstByte, idle time.Duration, waits ...time.Duration) *Stream {
	t.Helper()
	ctx, stream := guard(t.Context(), Limits{FirstByte: firstByte, Idle: idle})
	stream.attach("text/event-stream", &script{ctx: ctx, waits: waits})
	t.Cleanup(func() { _ = stream.Close() })
	return stream
}

func TestStream_EndsAfterItsLimits(t *testing.T) {
	for name, tc := range map[string]struct {
		waits []time.Duration
		want  error
		after time.Duration
	}{
		"first byte": {[]time.Duration{time.Hour}, ErrFirstByteTimeout, 10 * time.Second},
		"idle":       {[]time.Duration{9 * time.Second, time.Hour}, ErrIdleTimeout, 14 * time.Second},
		"neither":    {[]time.Duration{9 * time.Second, 4 * time.Second, 4 * time.Second}, nil, 17 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				_, err := io.ReadAll(open(t, 10*time.Second, 5*time.Second, tc.waits...))
				if !errors.Is(err, tc.want) || time.Since(began) != tc.after {
					t.Errorf("ended with %v after %v, want %v after %v", err, time.Since(began), tc.want, tc.after)
				}
			})
		})
	}
}

func TestStream_AbandonedBeforeTheFirstByteEndsWithIt(t *testing.T) {
	gone := errors.New("gone")
	synctest.Test(t, func(t *testing.T) {
		stream := open(t, time.Minute, time.Minute, 3*time.Second, time.Hour)
		stream.limits.abandon(gone, 10*time.Second)
		began := time.Now()
		_, err := io.ReadAll(stream)
		if !errors.Is(err, gone) || time.Since(began) != 3*time.Second {
			t.Errorf("ended with %v after %v, want %v with the first byte", err, time.Since(began), gone)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		stream := open(t, time.Minute, time.Minute, time.Hour)
		stream.limits.abandon(gone, 10*time.Second)
		began := time.Now()
		_, err := io.ReadAll(stream)
		if err == nil || time.Since(began) != 10*time.Second {
			t.Errorf("ended with %v after %v, want an error after the limit", err, time.Since(began))
		}
	})
	synctest.Test(t, func(t *testing.T) {
		stream := open(t, time.Minute, time.Minute, time.Second, time.Hour)
		var b [1]byte
		if _, err := stream.Read(b[:]); err != nil {
			t.Fatal(err)
		}
		stream.limits.abandon(gone, 10*time.Second)
		began := time.Now()
		if _, err := stream.Read(b[:]); !errors.Is(err, gone) || time.Since(began) != 0 {
			t.Errorf("ended with %v after %v, want %v at once", err, time.Since(began), gone)
		}
	})
}

// A read or its timer may be under way while the leg is abandoned, and come to the limits later.
func TestStream_AbandonedKeepsItsLimit(t *testing.T) {
	gone := errors.New("gone")
	for name, later := range map[string]func(*legLimits){"a first read": (*legLimits).begins, "the timer": (*legLimits).due} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				stream := open(t, time.Minute, time.Minute, 0, time.Hour)
				stream.Spare()
				var b [1]byte
				if _, err := stream.Read(b[:]); err != nil {
					t.Fatal(err)
				}
				stream.limits.abandon(gone, 10*time.Second)
				later(&stream.limits)
				began := time.Now()
				if _, err := stream.Read(b[:]); !errors.Is(err, gone) || time.Since(began) != 10*time.Second {
					t.Errorf("ended with %v after %v, want %v after 10s", err, time.Since(began), gone)
				}
			})
		})
	}
}

// Only reads that wait are idle, from when they begin to wait, whenever the timer fires meanwhile.
func TestStream_IsIdleOnlyWhileItWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stream := open(t, time.Hour, 10*time.Second, 30*time.Second, 7*time.Second, 9*time.Second, time.Hour)
		var b [1]byte
		for _, slow := range []time.Duration{time.Minute, 3 * time.Second, 14 * time.Second} {
			if _, err := stream.Read(b[:]); err != nil {
				t.Fatal(err)
			}
			<-time.After(slow) // the client takes what was read
		}
		began := time.Now()
		if _, err := stream.Read(b[:]); !errors.Is(err, ErrIdleTimeout) || time.Since(began) != 10*time.Second {
			t.Errorf("ended with %v after %v, want %v after 10s", err, time.Since(began), ErrIdleTimeout)
		}
	})
}

func TestStream_ThatNeverEndsIsEnded(t *testing.T) {
	ctx, stream := guard(t.Context(), Limits{FirstByte: time.Minute, Idle: time.Minute})
	stream.attach("text/event-stream", io.NopCloser(babble{}))
	defer func() { _ = stream.Close() }()
	n, err := io.Copy(io.Discard, stream)
	if !errors.Is(err, ErrStreamTooLong) || n > maxStream+1<<20 || ctx.Err() == nil {
		t.Errorf("ended with %v after %d bytes, leg ended: %v, want %v", err, n, ctx.Err(), ErrStreamTooLong)
	}
}

// babble always has more.
type babble struct{}

func (babble) Read(p []byte) (int, error) { return len(p), nil }

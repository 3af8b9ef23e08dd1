package upstream

import (
	"context"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"carryover/convcache/clocktest"
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

// The limit of a whole answer has a name of its own, because the client decides how long the answer is.
func TestStream_AWholeAnswerThatIsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stream := guard(t.Context(), Limits{FirstByte: time.Second, Whole: true})
		stream.attach("application/json", &script{ctx: ctx, waits: []time.Duration{time.Hour}})
		defer func() { _ = stream.Close() }()
		if _, err := io.ReadAll(stream); !errors.Is(err, ErrAnswerTimeout) || !IsTimeout(err) {
			t.Errorf("ended with %v, want %v", err, ErrAnswerTimeout)
		}
	})
}

func TestStream_AbandonedEndsWithTheFirstByteOrItsLimit(t *testing.T) {
	gone := errors.New("gone")
	for name, tc := range map[string]struct {
		waits []time.Duration
		begun bool // the first byte was read before
		after time.Duration
	}{
		"before it":  {[]time.Duration{3 * time.Second, time.Hour}, false, 3 * time.Second},
		"without it": {[]time.Duration{time.Hour}, false, 10 * time.Second},
		"after it":   {[]time.Duration{time.Second, time.Hour}, true, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			stream := open(t, time.Minute, time.Minute, tc.waits...)
			if tc.begun {
				_, err := stream.Read(make([]byte, 1))
				must(t, err)
			}
			stream.limits.abandon(gone, 10*time.Second)
			began := time.Now()
			if _, err := io.ReadAll(stream); err == nil || name != "without it" && !errors.Is(err, gone) || time.Since(began) != tc.after {
				t.Errorf("%s: ended with %v after %v, want %v after %v", name, err, time.Since(began), gone, tc.after)
			}
		})
	}
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
				_, err := stream.Read(b[:])
				must(t, err)
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
			_, err := stream.Read(b[:])
			must(t, err)
			<-time.After(slow) // the client takes what was read
		}
		began := time.Now()
		if _, err := stream.Read(b[:]); !errors.Is(err, ErrIdleTimeout) || time.Since(began) != 10*time.Second {
			t.Errorf("ended with %v after %v, want %v after 10s", err, time.Since(began), ErrIdleTimeout)
		}
	})
}

func TestStream_ThatNeverEndsIsEnded(t *testing.T) {
	ctx, stream := guard(t.Context(), minutes())
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

// decodeFrom runs a decode leg up to its headers.
func decodeFrom(t *testing.T, client *Client, instance *Instance) *Stream {
	t.Helper()
	stream, err := client.Decode(context.Background(), legTo(instance), minutes())
	must(t, err)
	t.Cleanup(func() { _ = stream.Close() })
	return stream
}

// serveFor starts a server, with TLS or without, and a client that trusts it.
func serveFor(t *testing.T, secure bool, handler http.Handler) (*Client, *httptest.Server) {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	t.Cleanup(server.Close)
	client := newTestClient(t, "")
	if secure {
		server.StartTLS()
		client.trust(server)
	} else {
		server.Start()
	}
	return client, server
}

// startServer starts an engine as serveFor does.
func startServer(t *testing.T, secure bool, handler http.HandlerFunc) (*Client, *Instance) {
	t.Helper()
	client, server := serveFor(t, secure, handler)
	instance, err := NewInstance(RoleDecode, "engine", server.URL)
	must(t, err)
	return client, &instance
}

// A connection outlives its answers. It is watched while it is idle, and serves legs
// and other requests. Over TLS the end of an answer can be read without reading the
// connection.
func TestStream_WhatFollowsOnTheConnectionChangesNothing(t *testing.T) {
	for name, secure := range map[string]bool{"plain": false, "TLS": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			goOn := make(chan struct{}, 2) // one for each leg
			client, instance := startServer(t, secure, func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodGet {
					pass(moment)
					return
				}
				w.Header().Set("Content-Type", "text/event-stream")
				_, _ = io.WriteString(w, "one")
				_ = http.NewResponseController(w).Flush()
				<-goOn
				_, _ = io.WriteString(w, "finish")
				_ = http.NewResponseController(w).Flush()
			})
			first := decodeFrom(t, client, instance)
			l := &leg{t: t, stream: first}
			l.read("one")
			serving := first.conn
			goOn <- struct{}{}
			pass(lying)
			l.read("finish")
			_, err := io.ReadAll(first)
			must(t, err)
			over := time.Now()
			_, _, err = client.Fetch(t.Context(), instance, "/metrics", "", 0)
			must(t, err)
			goOn <- struct{}{}
			second := decodeFrom(t, client, instance)
			if serving == nil || serving != second.conn || first.conn != nil {
				t.Fatal("the legs had different connections, so this test shows nothing")
			}
			l.wantBefore(over)
			if got := second.FreshAsOf(); got.Before(over) {
				t.Errorf("the second leg caught up %v before it began", over.Sub(got))
			}
		})
	}
}

// reading is a read that began so long after the leg, whether it left nothing behind, and how long after the leg nothing
// had arrived yet of what is returned next.
type reading struct {
	at   time.Duration
	less bool
	want time.Duration
}

func TestAge_CountsFromTheReadBeforeTheLast(t *testing.T) {
	const second, ms = time.Second, time.Millisecond
	for name, reads := range map[string][]reading{
		"of a stream":  {{1 * second, true, 0}, {2 * second, true, 1 * second}, {3 * second, true, 2 * second}, {4 * second, true, 3 * second}},
		"of one burst": {{1 * second, true, 0}, {1100 * ms, true, 1 * second}, {1100 * ms, true, 1100 * ms}, {1100 * ms, true, 1100 * ms}},
		// A read that returns all that it could may have left something.
		"that lay there": {
			{1 * second, true, 0}, {2 * second, false, 1 * second}, {3 * second, false, 1 * second}, {3 * second, true, 1 * second},
			{4 * second, true, 3 * second},
		},
		"that always fills the reads": {{1 * second, false, 0}, {2 * second, false, 0}, {300 * second, false, 0}},
		// What the engine could not send while nothing was read comes after that.
		"after a pause, nothing": {{1 * second, true, 0}, {60 * second, true, 1 * second}, {61 * second, true, 1 * second}},
		"after a pause, until as long again": {
			{1 * second, true, 0}, {11 * second, true, 1 * second}, {12 * second, true, 1 * second}, {13 * second, true, 1 * second},
			{15 * second, true, 1 * second}, {17 * second, true, 1 * second}, {19 * second, true, 1 * second}, {20 * second, true, 1 * second},
			{21 * second, true, 1 * second}, {22 * second, true, 21 * second},
		},
		"after a pause in full reads": {{1 * second, true, 0}, {2 * second, false, 1 * second}, {10 * second, false, 1 * second}, {10 * second, true, 1 * second}, {11 * second, true, 1 * second}},
		"that begins late":            {{10 * second, true, 0}, {11 * second, true, 0}, {12 * second, true, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			leg := time.Now()
			a := age{doubted: leg.Add(time.Hour)} // of the leg before
			a.begin(leg)
			for i, r := range reads {
				a.read(leg.Add(r.at), r.less)
				if got := a.before.Sub(leg); got != r.want {
					t.Fatalf("read %d at %v: counts from %v, want %v", i, r.at, got, r.want)
				}
			}
		})
	}
}

// While a machine is suspended its kernel takes nothing in either, and its monotonic clock stands still.
func TestAge_ASuspendedMachineFindsNoProofAtOnce(t *testing.T) {
	leg := time.Now()
	var a age
	a.begin(leg)
	awake := clocktest.Apart(t, leg.Add(time.Second), time.Hour)
	for range 10 {
		a.read(awake, true)
		awake = awake.Add(time.Second)
	}
	if !a.before.Equal(leg) {
		t.Errorf("counts from %v before it woke, want the moment before it slept", awake.Sub(a.before))
	}
}

func TestElapsed_GoesByTheClockThatSaysLonger(t *testing.T) {
	since := time.Now()
	wall := since.Round(0)
	for name, tc := range map[string]struct {
		since, now time.Time
		want       time.Duration
	}{
		"both":                     {since, since.Add(time.Minute), time.Minute},
		"suspended meanwhile":      {since, clocktest.Apart(t, since.Add(time.Second), time.Hour), time.Hour + time.Second},
		"wall clock set back":      {since, clocktest.Apart(t, since.Add(time.Minute), -time.Hour), time.Minute},
		"wall clock only":          {wall, since.Add(time.Minute), time.Minute},
		"to come":                  {since.Add(time.Minute), since, -time.Minute},
		"to come, suspended since": {since.Add(time.Minute), clocktest.Apart(t, since, time.Hour), time.Hour - time.Minute},
	} {
		if got := Elapsed(tc.since, tc.now); got != tc.want {
			t.Errorf("%s: got %v, want %v", name, got, tc.want)
		}
	}
}

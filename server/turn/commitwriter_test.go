package turn

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"carryover/server/record"
	"carryover/sse"
)

// clock is a client whose connection notes the deadlines of writes.
type clock struct {
	http.ResponseWriter
	deadline time.Time
	set      int
}

func (*clock) Header() http.Header         { return http.Header{} }
func (*clock) WriteHeader(int)             {}
func (*clock) Write(p []byte) (int, error) { return len(p), nil }
func (*clock) FlushError() error           { return nil }
func (c *clock) SetWriteDeadline(t time.Time) error {
	c.deadline = t
	c.set++
	return nil
}

// writerTo is the commitWriter of a turn.
func writerTo(w http.ResponseWriter, limit time.Duration, bounded time.Time, of *record.Builder) *commitWriter {
	return &commitWriter{w: w, limit: limit, bounded: bounded, record: of}
}

func TestCommitWriter_EachWriteMayLastAsLongAsTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 40 * time.Second
		c := &clock{}
		o := writerTo(c, limit, time.Time{}, &record.Builder{})
		o.committed = true
		writes := 0
		for _, pause := range []time.Duration{0, time.Second, 8 * time.Second, 999 * time.Millisecond, time.Millisecond, time.Hour, 9 * time.Second, 2 * time.Second} {
			<-time.After(pause)
			if _, err := o.Write([]byte("x")); err != nil {
				t.Fatal(err)
			}
			writes++
			if left := time.Until(c.deadline); left < limit || left > limit+limit/slack {
				t.Errorf("write %d may last %v, want %v to %v", writes, left, limit, limit+limit/slack)
			}
		}
		if c.set != 4 {
			t.Errorf("the deadline was set %d times for %d writes, want 4 times", c.set, writes)
		}
	})
}

// The request has set a deadline when the turn began, which serves the first writes like one of the commitWriter's own.
func TestCommitWriter_FirstWritesHaveTheLimitOfTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 40 * time.Second
		began := time.Now()
		c := &clock{deadline: began.Add(WriteLimit(limit))}
		o := writerTo(c, limit, began, &record.Builder{})
		o.committed = true
		for i, want := range []int{0, 0, 1, 1} {
			if _, err := o.Write([]byte("x")); err != nil {
				t.Fatal(err)
			}
			if left := time.Until(c.deadline); left < limit || left > WriteLimit(limit) || c.set != want {
				t.Errorf("write %d may last %v and the deadline was set %d times; want %v at least, and %d times", i+1, left, c.set, limit, want)
			}
			<-time.After(limit/slack - 3*time.Second)
		}
	})
}

// countingListener counts the writes to its connections.
type countingListener struct {
	net.Listener
	writes atomic.Int64
}

func (l *countingListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	return &countingConn{conn, &l.writes}, err
}

type countingConn struct {
	net.Conn
	writes *atomic.Int64
}

func (c *countingConn) Write(p []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(p)
}

func TestCommitWriter_ReadsOfTheRelayAreOneWriteEach(t *testing.T) {
	event := func(size int) string { return "data: " + strings.Repeat("x", size-len("data: \n\n")) + "\n\n" }
	rest := []string{event(20), event(300), event(300) + event(300), event(1000), strings.Repeat(event(16), 2000), event(300)}
	var l *countingListener
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		o := writerTo(w, time.Minute, time.Time{}, &record.Builder{})
		o.commit()
		if err := o.Flush(); err != nil {
			t.Error(err)
		}
		before, offered := l.writes.Load(), int64(0)
		if err := sse.New(o, o.Flush, sse.Config{}).Run(readFunc(func(p []byte) (int, error) {
			if len(rest) == 0 {
				return 0, io.EOF
			}
			offered++
			n := copy(p, rest[0])
			if rest[0] = rest[0][n:]; rest[0] == "" {
				rest = rest[1:]
			}
			return n, nil
		})); err != nil {
			t.Error(err)
		}
		if got := l.writes.Load() - before; got > offered {
			t.Errorf("%d writes to the connection for %d reads", got, offered)
		}
	}))
	l = &countingListener{Listener: srv.Listener}
	srv.Listener = l
	srv.Start()
	defer srv.Close()
	res, err := http.Get(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, res.Body)
}

type readFunc func(p []byte) (int, error)

func (f readFunc) Read(p []byte) (int, error) { return f(p) }

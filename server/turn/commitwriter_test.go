package turn

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
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

// wireless is a listener for one connection without a network, whose client sends one request and takes everything.
type wireless struct {
	net.Conn
	request *strings.Reader
	closing sync.Once
	closed  chan struct{}
	taken   chan struct{} // closed when the connection has been accepted
	writes  [][]byte      // of the server; read them from its handler
	keeps   bool          // writes are kept
}

func newWireless(keeps bool) *wireless {
	return &wireless{
		request: strings.NewReader("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), closed: make(chan struct{}), taken: make(chan struct{}), keeps: keeps,
	}
}

func (w *wireless) Accept() (net.Conn, error) {
	select {
	case <-w.taken:
		<-w.closed
		return nil, net.ErrClosed
	default:
		close(w.taken)
		return w, nil
	}
}

func (w *wireless) Read(p []byte) (int, error) {
	if w.request.Len() > 0 {
		return w.request.Read(p)
	}
	<-w.closed
	return 0, io.EOF
}

func (w *wireless) Write(p []byte) (int, error) {
	if w.keeps {
		w.writes = append(w.writes, bytes.Clone(p))
	}
	return len(p), nil
}

func (w *wireless) Close() error {
	w.closing.Do(func() { close(w.closed) })
	return nil
}

func (*wireless) Addr() net.Addr                   { return &net.TCPAddr{} }
func (*wireless) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (*wireless) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (*wireless) SetDeadline(time.Time) error      { return nil }
func (*wireless) SetReadDeadline(time.Time) error  { return nil }
func (*wireless) SetWriteDeadline(time.Time) error { return nil }

// serveWireless has net/http's server run handle for a client with a commitWriter.
func serveWireless(w *wireless, handle func(o *commitWriter)) {
	srv := &http.Server{Handler: http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		handle(writerTo(rw, time.Minute, time.Time{}, &record.Builder{}))
		_ = w.Close()
	}), ReadHeaderTimeout: time.Minute}
	_ = srv.Serve(w) // ends with the connection
	_ = srv.Close()
}

func TestCommitWriter_ReadsOfTheRelayAreOneWriteEach(t *testing.T) {
	event := func(size int) string { return "data: " + strings.Repeat("x", size-len("data: \n\n")) + "\n\n" }
	reads := []string{event(20), event(300), event(300) + event(300), event(1000), strings.Repeat(event(16), 2000), event(300)}
	w := newWireless(true)
	serveWireless(w, func(o *commitWriter) {
		o.commit()
		if err := o.Flush(); err != nil {
			t.Error(err)
		}
		before := len(w.writes)
		rest := reads
		src := readFunc(func(p []byte) (int, error) {
			if len(rest) == 0 {
				return 0, io.EOF
			}
			n := copy(p, rest[0])
			if rest[0] = rest[0][n:]; rest[0] == "" {
				rest = rest[1:]
			}
			return n, nil
		})
		offered := 0
		if err := sse.New(o, o.Flush, sse.Config{}).Run(readFunc(func(p []byte) (int, error) {
			offered++
			return src(p)
		})); err != nil {
			t.Error(err)
		}
		// One read more finds the end.
		if got := len(w.writes) - before; got > offered-1 {
			t.Errorf("%d writes to the connection for %d reads", got, offered-1)
		}
	})
}

type readFunc func(p []byte) (int, error)

func (f readFunc) Read(p []byte) (int, error) { return f(p) }

// BenchmarkCommitWriter is what a chunk costs from the relay to the connection.
func BenchmarkCommitWriter(b *testing.B) {
	p := []byte(`data: {"id":"chatcmpl-leg-7","object":"chat.completion.chunk","created":1795271341,"model":"m","choices":[{"index":0,` +
		`"delta":{"content":" tok\u00e9n\n"},"logprobs":null,"finish_reason":null,"token_ids":null}]}` + "\n\n")
	b.ReportAllocs()
	w := newWireless(false)
	serveWireless(w, func(o *commitWriter) {
		o.commit()
		b.ResetTimer()
		for range b.N {
			if _, err := o.Write(p); err != nil {
				b.Error(err)
			}
			if err := o.Flush(); err != nil {
				b.Error(err)
			}
		}
	})
}

package upstream

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// wireEngine is a decode instance that reads one request and then writes what the
// test writes, byte for byte.
func wireEngine(t *testing.T) (instance *Instance, accepted <-chan net.Conn) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	conns := make(chan net.Conn, 1) // the engine does not wait for the test
	over := make(chan struct{})
	go func() {
		defer close(over)
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		if r, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
			_, _ = io.Copy(io.Discard, r.Body)
		}
		conns <- conn
	}()
	t.Cleanup(func() {
		_ = listener.Close()
		<-over
		select {
		case conn := <-conns:
			_ = conn.Close()
		default:
		}
	})
	i, err := NewInstance(RoleDecode, "wire", "http://"+listener.Addr().String())
	must(t, err)
	return &i, conns
}

// Heads of answers.
const (
	wholeHead  = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n"
	streamHead = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
)

// leg is a decode leg whose engine the test plays.
type leg struct {
	t      *testing.T
	stream *Stream
	engine net.Conn
	over   func(text string) time.Time // says it in another way; nil writes to engine
}

// minutes are limits that these tests don't come to.
func minutes() Limits { return Limits{FirstByte: time.Minute, Idle: time.Minute} }

// startLeg sends a leg; once the engine has it, answer plays the first part of the
// engine, up to the headers at least.
func startLeg(t *testing.T, answer func(l *leg)) *leg {
	t.Helper()
	instance, accepted := wireEngine(t)
	client := newTestClient(t, "")
	l := &leg{t: t}
	played := make(chan struct{})
	go func() {
		defer close(played)
		l.engine = <-accepted
		answer(l)
	}()
	stream, err := client.Decode(t.Context(), legTo(instance), minutes())
	must(t, err)
	l.stream = stream
	<-played
	t.Cleanup(func() {
		_ = l.engine.Close()
		_ = stream.Close()
	})
	return l
}

// say writes as the engine and returns a moment at which that has arrived: on
// loopback, bytes are in the other end's socket when the write returns.
func (l *leg) say(text string) time.Time {
	l.t.Helper()
	if l.over != nil {
		return l.over(text)
	}
	if _, err := io.WriteString(l.engine, text); err != nil {
		l.t.Error(err)
	}
	return time.Now()
}

// event is one chunk of an answer's body.
func event(data string) string { return fmt.Sprintf("%x\r\n%s\r\n", len(data), data) }

// read checks what comes next, in a read or several.
func (l *leg) read(want string) {
	l.t.Helper()
	p, n := make([]byte, 1<<10), 0
	for n < len(want) {
		m, err := l.stream.Read(p[n:])
		if n += m; err != nil && !errors.Is(err, io.EOF) || !strings.HasPrefix(want, string(p[:n])) || err != nil && n < len(want) {
			l.t.Fatalf("read %q (%v), want %q", p[:n], err, want)
		}
	}
}

// pass lets the clock pass, while nothing is done that could be waited for.
func pass(d time.Duration) { <-time.After(d) }

// wantBefore checks that the answer is not taken for younger than it is.
func (l *leg) wantBefore(arrived time.Time) {
	l.t.Helper()
	if got := l.stream.FreshAsOf(); got.After(arrived) {
		l.t.Errorf("caught up %v after the bytes had arrived", got.Sub(arrived))
	}
}

// lying is longer than an idle machine takes for anything, moment some time more.
const lying, moment = 60 * time.Millisecond, time.Second

// The age is that of the reads before, so that a ticket of a long stream keeps nearly all of its time.
func TestStream_IsNotMuchOlderThanItIs(t *testing.T) {
	for name, start := range map[string]func(t *testing.T) *leg{
		"plain": func(t *testing.T) *leg {
			return startLeg(t, func(l *leg) { l.say(streamHead + event("one")) })
		},
		"TLS": func(t *testing.T) *leg {
			says, words := make(chan string), make(chan time.Time)
			l := secureLeg(t, func(_ *stalling, w io.Writer) {
				for text := range says {
					_, _ = io.WriteString(w, text)
					words <- time.Now()
				}
			})
			t.Cleanup(func() { close(says) })
			l.over = func(text string) time.Time {
				says <- text
				return <-words
			}
			return l
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := start(t)
			if name == "plain" {
				l.read("one")
			}
			var read []time.Time
			for i := range 10 {
				arrived := l.say(event("more"))
				l.read("more")
				l.wantBefore(arrived)
				if got := l.stream.FreshAsOf(); i >= 3 && got.Before(read[i-3]) {
					t.Errorf("event %d counts from %v before the end of the third read before", i, read[i-3].Sub(got))
				}
				read = append(read, time.Now())
			}
		})
	}
}

// A client that takes its time keeps the relay from reading. The answer waits meanwhile, at our end or, where that is full, at the engine's.
func TestStream_ASlowClientMakesNoTicketYounger(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		behind, room int
		younger      bool // a mutant reads
	}{
		"in small reads": {behind: 5, room: 4}, "in large reads": {behind: 5, room: 4 << 10},
		"more than fits at our end": {behind: 16 << 20, room: 64 << 10}, "mutant": {behind: 5, room: 4, younger: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := startLeg(t, func(l *leg) { l.say(streamHead + event("one")) })
			l.read("one")
			l.say(event("two"))
			l.read("two")
			finished, over := time.Now(), make(chan struct{})
			go func() {
				defer close(over)
				l.say(event(strings.Repeat("x", tc.behind)) + event("finish") + "0\r\n\r\n")
			}()
			pass(heldBack + moment)
			p, left, wrong := make([]byte, tc.room), tc.behind+len("finish"), false
			for left > 0 {
				if tc.younger {
					makeYounger(l.stream)
				}
				n, err := l.stream.Read(p)
				if left -= n; err != nil && (left > 0 || !errors.Is(err, io.EOF)) {
					t.Fatalf("%d bytes left: %v", left, err)
				}
				wrong = wrong || l.stream.FreshAsOf().After(finished)
			}
			if wrong != tc.younger {
				t.Errorf("taken for younger than it is: %t, want %t", wrong, tc.younger)
			}
			<-over
		})
	}
}

// makeYounger makes a stream a mutant that counts the age of what it reads next from now. The suite must see it.
func makeYounger(s *Stream) {
	if s.conn != nil {
		s.conn.age.before = time.Now()
	}
}

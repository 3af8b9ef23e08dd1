package http1

import (
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"carryover/convcache/clocktest"
)

// What a peer does to a connection that is idle is seen before it is used again: by a look, and by the request that would have
// had it. That its peer has ended it is told.
func TestClient_UsesNoConnectionThatIsNotQuiet(t *testing.T) {
	for name, spoil := range map[string]func(p *player){
		"closed": func(p *player) { _ = p.Close() },
		"reset":  func(p *player) { _ = p.Conn.(*net.TCPConn).SetLinger(0); _ = p.Close() },
		"said":   func(p *player) { p.say("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nbad") },
	} {
		for _, looked := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, looked at %t", name, looked), func(t *testing.T) {
				idle, spoiled := make(chan struct{}), make(chan struct{})
				s := newRaw(t, func(p *player, number int) {
					p.request()
					p.say(okHead + "{}")
					if number == 1 {
						<-idle
						spoil(p)
						close(spoiled)
					}
					p.gone()
				})
				var lost []string
				c := New(Config{Dial: dialTCP, IdlePerHost: 4, IdleFor: time.Minute, Lost: func(scheme, authority string) {
					lost = append(lost, scheme+"://"+authority)
				}})
				t.Cleanup(c.Close)
				for i := range 2 {
					if _, body, err := fetch(t, c, s.get()); err != nil || body != "{}" {
						t.Errorf("request %d: got %q, %v", i, body, err)
					}
					if i > 0 {
						continue
					}
					c.Check("http", s.authority)
					if len(lost) != 0 {
						t.Errorf("told of %v while the connection was good", lost)
					}
					close(idle)
					<-spoiled // on loopback it has arrived
					if looked {
						c.Check("http", s.authority)
						c.Check("http", s.authority)
					}
				}
				if s.conns.Load() != 2 || name != "said" && !slices.Equal(lost, []string{"http://" + s.authority}) {
					t.Errorf("got %d connections, told of %v, want 2 and one that was lost", s.conns.Load(), lost)
				}
			})
		}
	}
}

// A request is never repeated, not even on a connection that broke as it was used again.
func TestClient_RepeatsNothing(t *testing.T) {
	seen := make(chan struct{}, 4)
	s := newRaw(t, func(p *player, _ int) {
		p.request()
		p.say(okHead + "{}")
		p.request()
		seen <- struct{}{}
	})
	c := newClient(t)
	_, _, err := fetch(t, c, s.get())
	must(t, err)
	connected := 0
	q := s.post([]byte("{}"))
	q.Connected = func(net.Conn) { connected++ }
	if _, _, err := fetch(t, c, q); !errors.Is(err, io.ErrUnexpectedEOF) || connected != 1 || len(seen) != 1 || s.conns.Load() != 1 {
		t.Errorf("got %v, connected %d times, %d requests, %d connections", err, connected, len(seen), s.conns.Load())
	}
}

// kept is a connection in a pool.
type kept struct {
	script
	name string
}

func TestPool_ClosesWhatIsIdle(t *testing.T) {
	for range 50 { // in whatever order a map is gone through
		synctest.Test(t, closesWhatIsIdle)
	}
}

func closesWhatIsIdle(t *testing.T) {
	a, b := peer{"http", "a"}, peer{"https", "a"}
	p := &pool{idle: map[peer][]resting{}, most: 2, keep: 4 * time.Second}
	began := time.Now()
	conns := []*kept{{name: "first"}, {name: "second"}, {name: "third"}, {name: "other"}}
	p.put(a, conns[0])
	<-time.After(time.Second)
	p.put(a, conns[1])
	p.put(b, conns[3])
	p.put(a, conns[2])
	if !conns[2].closed.Load() {
		t.Error("more are kept than may be")
	}
	if got := p.take(a); got != conns[1] {
		t.Errorf("took %v, want the one that was used last", got)
	}
	<-time.After(time.Second)
	p.put(a, conns[1])
	for _, tc := range []struct {
		after time.Duration
		want  [3]bool
	}{{3999 * time.Millisecond, [3]bool{}}, {4 * time.Second, [3]bool{true, false, false}}, {5 * time.Second, [3]bool{true, false, true}}, {6 * time.Second, [3]bool{true, true, true}}} {
		<-time.After(time.Until(began.Add(tc.after)))
		synctest.Wait()
		if got := [3]bool{conns[0].closed.Load(), conns[1].closed.Load(), conns[3].closed.Load()}; got != tc.want {
			t.Errorf("after %v closed are %v, want %v", tc.after, got, tc.want)
		}
	}
	p.mu.Lock()
	if len(p.idle) != 0 || p.timer != nil {
		t.Errorf("%d peers are kept, with timer %v", len(p.idle), p.timer != nil)
	}
	p.mu.Unlock()
}

// The timer may be late: the process stood still.
func TestPool_TakesNothingThatWasIdleForTooLong(t *testing.T) {
	p := &pool{idle: map[peer][]resting{}, most: 2, keep: 4 * time.Second}
	to := peer{"http", "a"}
	old := &kept{}
	p.put(to, old)
	defer p.dropAll()
	since := p.idle[to][0].since
	for name, now := range map[string]time.Time{
		"suspended meanwhile": clocktest.Apart(t, since.Add(time.Second), time.Hour),
		"wall clock set back": clocktest.Apart(t, since.Add(5*time.Second), -time.Hour),
	} {
		if !p.expired(p.idle[to][0], now) {
			t.Errorf("%s: not expired", name)
		}
	}
	if p.expired(p.idle[to][0], since.Add(3*time.Second)) {
		t.Error("expired before its time")
	}
	p.idle[to][0].since = time.Now().Add(-5 * time.Second)
	if got := p.take(to); got != nil || !old.closed.Load() {
		t.Errorf("took %v", got)
	}
}

func TestClient_ClosesConnectionsOfOnePeerOrAll(t *testing.T) {
	c := New(Config{IdlePerHost: 2, IdleFor: time.Minute})
	a, b := &kept{}, &kept{}
	c.pool.put(peer{"http", "a"}, a)
	c.pool.put(peer{"http", "b"}, b)
	if c.CloseIdle("http", "a"); !a.closed.Load() || b.closed.Load() {
		t.Errorf("closed are a %v, b %v, want a", a.closed.Load(), b.closed.Load())
	}
	if c.Close(); !b.closed.Load() || c.pool.timer != nil {
		t.Errorf("closed is b %v, with timer %v", b.closed.Load(), c.pool.timer != nil)
	}
}

// clinging is a connection whose peer takes no goodbye, as over TLS one may.
type clinging struct {
	script
	closing chan struct{} // has something when Close is called
	let     chan struct{} // Close returns when it is closed
}

func (c *clinging) Close() error {
	c.closing <- struct{}{}
	<-c.let
	return nil
}

// However long a connection takes to close, the connections of other requests are there meanwhile.
func TestPool_ClosesOutsideItsLock(t *testing.T) {
	for name, end := range map[string]func(p *pool, at peer, c Conn){
		"drop": func(p *pool, at peer, _ Conn) { p.drop(at) }, "drop all": func(p *pool, _ peer, _ Conn) { p.dropAll() },
		"age": func(p *pool, _ peer, _ Conn) { p.keep = 0; p.sweep() }, "no room": func(p *pool, at peer, c Conn) { p.most = 1; p.put(at, c) },
	} {
		t.Run(name, func(t *testing.T) {
			p := &pool{idle: map[peer][]resting{}, most: 2, keep: time.Hour}
			slow, other := peer{"https", "slow"}, peer{"https", "other"}
			c := &clinging{closing: make(chan struct{}, 1), let: make(chan struct{})}
			p.put(slow, c)
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				end(p, slow, c)
			}()
			<-c.closing
			served := make(chan struct{})
			go func() { // as another request does
				defer close(served)
				_ = p.take(other)
			}()
			select {
			case <-served:
			case <-time.After(10 * time.Second):
				t.Error("another request waits for a connection that is closed")
			}
			close(c.let)
			<-ended
			<-served
			p.mu.Lock()
			if p.timer != nil {
				p.timer.Stop()
			}
			p.mu.Unlock()
		})
	}
}

package connlimit

import (
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// arrivals is a listener whose connections a test makes.
type arrivals struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (a *arrivals) Accept() (net.Conn, error) {
	select {
	case c := <-a.conns:
		return c, nil
	case <-a.closed:
		return nil, net.ErrClosed
	}
}

func (a *arrivals) Close() error   { close(a.closed); return nil }
func (a *arrivals) Addr() net.Addr { return &net.TCPAddr{} }

// arrived is a connection from an address.
type arrived struct {
	net.Conn
	from net.Addr
}

func (a arrived) RemoteAddr() net.Addr { return a.from }

// stand is a listener that a test drives, on a clock of its own.
type stand struct {
	*Listener
	t        *testing.T
	arrivals *arrivals
	accepted chan *conn
	all      []*conn // that were accepted, and not closed by the test
	serving  map[*conn]bool
	log      strings.Builder
}

func onStand(t *testing.T, cfg Config, test func(t *testing.T, s *stand)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &stand{t: t, arrivals: &arrivals{make(chan net.Conn, 1000), make(chan struct{})}, accepted: make(chan *conn, 1000), serving: map[*conn]bool{}}
		cfg.Logger = slog.New(slog.NewTextHandler(&s.log, nil))
		if cfg.IdleWhenCrowded == 0 {
			cfg.IdleWhenCrowded = time.Hour
		}
		s.Listener = Listen(s.arrivals, cfg)
		go func() {
			defer close(s.accepted)
			for {
				c, err := s.Accept()
				if err != nil {
					return
				}
				s.accepted <- c.(*conn)
			}
		}()
		test(t, s)
		_ = s.Close()
		for c := range s.accepted {
			s.all = append(s.all, c)
		}
		s.endAll()
		if s.open != 0 || len(s.addresses) != 0 || s.idle.first != nil || s.idle.last != nil {
			t.Errorf("%d connections of %d addresses are counted as open at the end, and one is idle: %t", s.open, len(s.addresses), s.idle.first != nil)
		}
	})
}

// endAll closes all connections.
func (s *stand) endAll() {
	for _, c := range s.all {
		_ = c.Close()
	}
	s.all = nil
}

// check compares the lists with the connections.
func (s *stand) check() {
	s.t.Helper()
	synctest.Wait()
	for len(s.accepted) > 0 {
		s.all = append(s.all, <-s.accepted)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	open, resting, from := 0, []*conn{}, map[*address]int{}
	for _, c := range s.all {
		if c.left {
			if s.serving[c] {
				s.t.Fatal("a connection was closed while it served a request")
			}
			continue
		}
		open++
		from[c.from]++
		if c.resting {
			resting = append(resting, c)
		}
	}
	if open != s.open || open > s.cfg.Most || len(from) != len(s.addresses) {
		s.t.Fatalf("%d connections of %d addresses are open; counted are %d of %d, of at most %d", open, len(from), s.open, len(s.addresses), s.cfg.Most)
	}
	listed := 0
	for c := s.idle.first; c != nil; c = c.links[ofAll].behind {
		if next := c.links[ofAll].behind; next != nil && next.since.Before(c.since) {
			s.t.Fatal("the list of idle ones is out of order")
		}
		listed++
	}
	for a, n := range from {
		if n != a.open || n > s.cfg.PerAddress {
			s.t.Fatalf("%s has %d, counted are %d", a.key, n, a.open)
		}
		for c := a.idle.first; c != nil; c = c.links[ofAddress].behind {
			listed++
		}
	}
	if listed != 2*len(resting) {
		s.t.Fatalf("%d entries in lists, want two for each of %d", listed, len(resting))
	}
}

// comes has a connection come from an address, and returns it if it is accepted, and the client's end.
func (s *stand) comes(address string) (served *conn, client net.Conn) {
	s.t.Helper()
	client, server := net.Pipe()
	s.arrivals.conns <- arrived{server, &net.TCPAddr{IP: net.ParseIP(address)}}
	synctest.Wait()
	if len(s.accepted) == 0 {
		return nil, client
	}
	return s.next(), client
}

// next is a connection that was accepted.
func (s *stand) next() *conn {
	c := <-s.accepted
	s.ConnState(c, http.StateNew)
	s.all = append(s.all, c)
	return c
}

// busy is an accepted connection that serves a request.
func (s *stand) busy(address string) *conn {
	s.t.Helper()
	c, _ := s.comes(address)
	if c == nil {
		s.t.Fatalf("a connection from %s is not accepted", address)
	}
	s.ConnState(c, http.StateActive)
	return c
}

// ended reports whether a client's connection was closed.
func ended(client net.Conn) bool {
	_ = client.SetReadDeadline(time.Now().Add(time.Millisecond))
	_, err := client.Read(make([]byte, 1))
	return errors.Is(err, io.EOF)
}

func TestListener_IdleOnesMakeRoomLongestFirst(t *testing.T) {
	onStand(t, Config{Most: 3}, func(t *testing.T, s *stand) {
		silent, silents := s.comes("10.0.0.1")
		<-time.After(time.Second)
		served, serveds := s.comes("10.0.0.1")
		s.ConnState(served, http.StateActive)
		s.ConnState(served, http.StateIdle)
		working := s.busy("10.0.0.1")
		<-time.After(time.Second)
		s.ConnState(silent, http.StateIdle) // which changes nothing of how long it is idle
		if c, _ := s.comes("10.0.0.2"); c == nil || !ended(silents) || ended(serveds) {
			t.Fatalf("accepted %t, the silent one closed %t, the other one %t; want the one that is idle for longest in its place", c != nil, ended(silents), ended(serveds))
		}
		if c, _ := s.comes("10.0.0.2"); c == nil || !ended(serveds) {
			t.Error("the second one has no place, though one is idle")
		}
		if got := s.Counts(); got != (Counts{Idle: 2}) {
			t.Errorf("counted %+v, want two idle ones", got)
		}
		_ = working.Close()
	})
}

// While every connection is served another one waits for the first that is idle, or that ends.
func TestListener_WaitsWhileAllAreServed(t *testing.T) {
	onStand(t, Config{Most: 2}, func(t *testing.T, s *stand) {
		first, second := s.busy("10.0.0.1"), s.busy("10.0.0.1")
		if c, _ := s.comes("10.0.0.2"); c != nil {
			t.Fatal("a third one is accepted")
		}
		<-time.After(time.Hour)
		s.ConnState(first, http.StateIdle)
		synctest.Wait()
		if len(s.accepted) != 0 {
			t.Error("a client that was just served lost its connection")
		}
		<-time.After(leastIdle)
		synctest.Wait()
		if len(s.accepted) != 1 {
			t.Fatal("the third one is not accepted in place of the one that is idle")
		}
		s.ConnState(s.next(), http.StateActive)
		if c, _ := s.comes("10.0.0.2"); c != nil {
			t.Fatal("a fourth one is accepted")
		}
		_ = second.Close()
		_ = second.Close() // net/http may do so, and it counts once
		synctest.Wait()
		if len(s.accepted) != 1 {
			t.Fatal("the fourth one is not accepted in place of the one that has ended")
		}
		s.ConnState(s.next(), http.StateActive)
		if c, _ := s.comes("10.0.0.2"); c != nil { // waits until the listener is closed
			t.Error("a fifth one is accepted")
		}
	})
}

func TestListener_AnAddressHasItsShare(t *testing.T) {
	cfg := Config{Most: 100, PerAddress: 2, Trusted: []netip.Prefix{netip.MustParsePrefix("10.9.0.0/16"), netip.MustParsePrefix("fd00::1/128")}}
	onStand(t, cfg, func(t *testing.T, s *stand) {
		for _, addresses := range [][3]string{
			{"10.0.0.1", "10.0.0.1", "10.0.0.1"}, {"::ffff:10.0.0.2", "10.0.0.2", "10.0.0.2"}, {"2001:db8::1", "2001:db8::2", "2001:db8::ffff"}, {"fd00::2", "fd00::2", "fd00::2"},
		} {
			first, second := s.busy(addresses[0]), s.busy(addresses[1])
			if c, client := s.comes(addresses[2]); c != nil || !ended(client) {
				t.Errorf("%s: a third connection is accepted", addresses)
			}
			s.busy("10.0.0.77")
			_ = first.Close()
			s.ConnState(second, http.StateIdle)
			s.busy(addresses[2])
			if c, _ := s.comes(addresses[2]); c != nil {
				t.Errorf("%s: one is accepted in place of one that was just served", addresses)
			}
			<-time.After(leastIdle)
			s.busy(addresses[2]) // in place of the second, which is idle
			if n := second.from.open; n != 2 {
				t.Errorf("%s: %d are open, want 2", addresses, n)
			}
			s.endAll()
			if n := len(s.addresses); n != 0 {
				t.Errorf("%d addresses are kept, want none", n)
			}
		}
		for range 5 {
			s.busy("10.9.1.1")
			s.busy("fd00::1")
		}
		if got := s.Counts(); got != (Counts{Refused: 8, Idle: 4}) {
			t.Errorf("counted %+v, want eight that were refused, and four idle ones", got)
		}
		if n := strings.Count(s.log.String(), "has its share"); n != 1 {
			t.Errorf("%d lines, want one a minute: %s", n, s.log.String())
		}
	})
}

// What has no address, as the peer of a unix socket, has no share.
func TestListener_WhoHasNoAddress(t *testing.T) {
	onStand(t, Config{Most: 100, PerAddress: 1}, func(t *testing.T, s *stand) {
		for range 3 {
			client, server := net.Pipe()
			s.arrivals.conns <- arrived{server, &net.UnixAddr{Net: "unix"}}
			synctest.Wait()
			if ended(client) {
				t.Error("the connection is refused")
			}
		}
	})
}

func TestListener_IdleOnesEndEarlierWhileItIsCrowded(t *testing.T) {
	onStand(t, Config{Most: 8, IdleWhenCrowded: 10 * time.Second}, func(t *testing.T, s *stand) {
		var idle []net.Conn
		for range 4 {
			_, client := s.comes("10.0.0.1")
			idle = append(idle, client)
		}
		<-time.After(time.Minute)
		s.busy("10.0.0.1") // the fifth of eight
		if ended(idle[0]) {
			t.Error("an idle one was closed while there was room")
		}
		s.busy("10.0.0.1")
		for n, client := range idle {
			if !ended(client) {
				t.Errorf("idle one %d goes on while three quarters are in use", n)
			}
			s.busy("10.0.0.1")
		}
		if got := s.Counts(); got.Idle != 4 {
			t.Errorf("counted %+v, want four", got)
		}
	})
}

// Whatever happens, the bounds hold, nothing that is served is closed, and what is idle is in both lists, in order.
func TestListener_KeepsItsPromisesInAnyOrder(t *testing.T) {
	for seed := range uint64(50) {
		onStand(t, Config{Most: 6, PerAddress: 3, IdleWhenCrowded: 5 * time.Second}, func(t *testing.T, s *stand) {
			draw := rand.New(rand.NewPCG(seed, 1))
			for range 300 {
				at := func() *conn { return s.all[draw.IntN(len(s.all))] }
				switch op := draw.IntN(6); {
				case op < 2 || len(s.all) == 0:
					s.comes([]string{"10.0.0.1", "10.0.0.2", "10.0.0.3"}[draw.IntN(3)])
				case op == 2:
					c := at()
					s.ConnState(c, http.StateActive)
					s.mu.Lock()
					s.serving[c] = !c.left
					s.mu.Unlock()
				case op == 3:
					c := at()
					s.serving[c] = false
					s.ConnState(c, http.StateIdle)
				case op == 4:
					c := at()
					s.serving[c] = false
					_ = c.Close()
				case op == 5:
					<-time.After(time.Duration(draw.IntN(3000)) * time.Millisecond)
				}
				s.check()
			}
		})
	}
}

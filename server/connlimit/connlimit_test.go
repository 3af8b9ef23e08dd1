package connlimit

import (
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
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

// stand is a listener that a test drives, on a clock of its own.
type stand struct {
	*Listener
	t        *testing.T
	arrivals *arrivals
	accepted chan *conn
	all      []*conn // that were accepted, and not closed by the test
	serving  map[*conn]bool
}

func onStand(t *testing.T, most int, test func(t *testing.T, s *stand)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &stand{t: t, arrivals: &arrivals{make(chan net.Conn, 1000), make(chan struct{})}, accepted: make(chan *conn, 1000), serving: map[*conn]bool{}}
		s.Listener = Listen(s.arrivals, most)
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
		if s.open != 0 || s.idle.Len() != 0 {
			t.Errorf("%d connections are counted as open at the end, and %d as idle", s.open, s.idle.Len())
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

// check compares the counts with the connections.
func (s *stand) check() {
	s.t.Helper()
	synctest.Wait()
	for len(s.accepted) > 0 {
		s.all = append(s.all, <-s.accepted)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	open, idle := 0, 0
	for _, c := range s.all {
		if c.left {
			if s.serving[c] {
				s.t.Fatal("a connection was closed while it served a request")
			}
			continue
		}
		open++
		if c.idle != nil {
			idle++
		}
	}
	if open != s.open || open > s.most || idle != s.idle.Len() {
		s.t.Fatalf("%d connections are open, %d of them idle; counted are %d of at most %d, and %d", open, idle, s.open, s.most, s.idle.Len())
	}
}

// comes has a connection come, and returns it if it is accepted, and the client's end.
func (s *stand) comes() (served *conn, client net.Conn) {
	s.t.Helper()
	client, server := net.Pipe()
	s.arrivals.conns <- server
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
func (s *stand) busy() *conn {
	s.t.Helper()
	c, _ := s.comes()
	if c == nil {
		s.t.Fatal("a connection is not accepted")
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
	onStand(t, 3, func(t *testing.T, s *stand) {
		silent, silents := s.comes()
		served, serveds := s.comes()
		s.ConnState(served, http.StateActive)
		s.ConnState(served, http.StateIdle)
		s.busy()
		s.ConnState(silent, http.StateIdle) // which changes nothing of how long it is idle
		if c, _ := s.comes(); c == nil || !ended(silents) || ended(serveds) {
			t.Fatalf("accepted %t, the silent one closed %t, the other one %t; want the one that is idle for longest in its place", c != nil, ended(silents), ended(serveds))
		}
		if c, _ := s.comes(); c == nil || !ended(serveds) {
			t.Error("the second one has no place, though one is idle")
		}
		if got := s.Shed(); got != 2 {
			t.Errorf("counted %d, want two idle ones", got)
		}
	})
}

// While every connection is served another one waits for the first that is idle, or that ends.
func TestListener_WaitsWhileAllAreServed(t *testing.T) {
	onStand(t, 2, func(t *testing.T, s *stand) {
		first, second := s.busy(), s.busy()
		if c, _ := s.comes(); c != nil {
			t.Fatal("a third one is accepted")
		}
		<-time.After(time.Hour)
		s.ConnState(first, http.StateIdle)
		synctest.Wait()
		if len(s.accepted) != 1 {
			t.Fatal("the third one is not accepted in place of the one that is idle")
		}
		s.ConnState(s.next(), http.StateActive)
		if c, _ := s.comes(); c != nil {
			t.Fatal("a fourth one is accepted")
		}
		_ = second.Close()
		_ = second.Close() // net/http may do so, and it counts once
		synctest.Wait()
		if len(s.accepted) != 1 {
			t.Fatal("the fourth one is not accepted in place of the one that has ended")
		}
		s.ConnState(s.next(), http.StateActive)
		if c, _ := s.comes(); c != nil { // waits until the listener is closed
			t.Error("a fifth one is accepted")
		}
	})
}

// Whatever happens, the bound holds, nothing that is served is closed, and what is idle is in the list.
func TestListener_KeepsItsPromisesInAnyOrder(t *testing.T) {
	for seed := range uint64(50) {
		onStand(t, 6, func(t *testing.T, s *stand) {
			draw := rand.New(rand.NewPCG(seed, 1))
			for range 300 {
				at := func() *conn { return s.all[draw.IntN(len(s.all))] }
				switch op := draw.IntN(5); {
				case op < 2 || len(s.all) == 0:
					s.comes()
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
				}
				s.check()
			}
		})
	}
}

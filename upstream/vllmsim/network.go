package vllmsim

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
	"syscall"
	"time"

	"carryover/upstream/vllmsim/engine"
)

// keepAlive is uvicorn's keep-alive time-out, in wall time. Clients must drop idle connections before it ends.
const keepAlive = 5 * time.Second

// network is the HTTP port of an instance, and the connections of all its ports.
type network struct {
	serving engine.Gate // accept loops, and connections that are not HTTP
	server  *http.Server
	address string // HTTP host:port
	port    int    // file that keeps the port while nothing listens there, 0 for none

	mu        sync.Mutex // guards what follows
	http      net.Listener
	accepting chan struct{}         // closed when http accepts no more connections
	open      map[net.Conn]struct{} // of all ports
	closed    bool
}

// listen opens the HTTP port, which accepts nothing before serve. The port is kept until stop: while the instance refuses connections, no
// other program may get it, because a proxy would take it for the instance.
func (n *network) listen(address string) (err error) {
	if at, err := net.ResolveTCPAddr("tcp", address); err == nil && at.IP.To4() != nil {
		if n.port, address, err = reserve(at); err != nil {
			return fmt.Errorf("listen for HTTP: %w", err)
		}
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("listen for HTTP: %w", err)
	}
	n.http, n.address, n.open = l, l.Addr().String(), make(map[net.Conn]struct{})
	return nil
}

// reserve binds an address without listening there. Linux gives the port to a listener that names it, but not to a program that asks for any
// free port (SO_REUSEADDR, socket(7)).
func reserve(at *net.TCPAddr) (file int, address string, err error) {
	syscall.ForkLock.RLock()
	file, err = syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(file)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return 0, "", err
	}
	if err = syscall.SetsockoptInt(file, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err == nil {
		err = syscall.Bind(file, &syscall.SockaddrInet4{Addr: [4]byte(at.IP.To4()), Port: at.Port})
	}
	var bound syscall.Sockaddr
	if err == nil {
		bound, err = syscall.Getsockname(file)
	}
	if err != nil {
		_ = syscall.Close(file)
		return 0, "", err
	}
	return file, net.JoinHostPort(at.IP.String(), strconv.Itoa(bound.(*syscall.SockaddrInet4).Port)), nil
}

// serve answers HTTP with a handler until the network closes. ctx is the parent of every request.
func (n *network) serve(ctx context.Context, handler http.Handler) {
	n.server = &http.Server{
		Handler:           handler,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ConnState:         n.connState,
		IdleTimeout:       keepAlive,
		ReadHeaderTimeout: time.Minute,
	}
	n.acceptHTTP(n.http)
}

func (n *network) acceptHTTP(l net.Listener) {
	accepting := make(chan struct{})
	n.accepting = accepting
	n.serving.Spawn(func() {
		defer close(accepting)
		_ = n.server.Serve(l) // ends when the listener is closed
	})
}

func (n *network) refuse() {
	n.mu.Lock()
	_ = n.http.Close() // closing twice does no harm
	accepting := n.accepting
	n.mu.Unlock()
	<-accepting // the kernel accepts connections until the call of Accept has returned
	n.drop()
}

func (n *network) listenAgain() error {
	l, err := net.Listen("tcp", n.address)
	if err != nil {
		return fmt.Errorf("listen again: %w", err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.http = l
	n.acceptHTTP(l)
	return nil
}

// accept serves connections of a port other than HTTP until the listener closes.
func (n *network) accept(l net.Listener, serve func(net.Conn)) {
	n.serving.Spawn(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			if !n.track(conn) {
				_ = conn.Close() // the instance is closing
				return
			}
			n.serving.Spawn(func() {
				defer n.untrack(conn)
				serve(conn)
			})
		}
	})
}

func (n *network) connState(conn net.Conn, state http.ConnState) {
	switch state {
	case http.StateNew:
		n.track(conn)
	case http.StateClosed, http.StateHijacked:
		n.mu.Lock()
		delete(n.open, conn)
		n.mu.Unlock()
	}
}

func (n *network) track(conn net.Conn) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return false
	}
	n.open[conn] = struct{}{}
	return true
}

func (n *network) untrack(conn net.Conn) {
	n.mu.Lock()
	delete(n.open, conn)
	n.mu.Unlock()
	_ = conn.Close() // the peer has gone or has to go
}

// drop closes all connections, as the end of a process does.
func (n *network) drop() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for conn := range n.open {
		_ = conn.Close() // intended
	}
}

// stop begins the shutdown: the network accepts no more connections.
func (n *network) stop() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closed = true
	if n.http != nil {
		_ = n.http.Close() // refused instances have closed it before
	}
	if n.port > 0 {
		_ = syscall.Close(n.port)
		n.port = 0
	}
}

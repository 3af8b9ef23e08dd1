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
	accepting chan struct{}                   // closed when http accepts no more connections
	open      map[net.Conn]context.CancelFunc // of all ports
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
	n.http, n.address, n.open = l, l.Addr().String(), make(map[net.Conn]context.CancelFunc)
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

// serve answers HTTP with a handler until the network closes.
func (n *network) serve(handler http.Handler) {
	n.server = n.newServer(handler)
	n.acceptHTTP(n.http)
}

// newServer returns a server whose connections are the network's. Each has a context for its requests.
func (n *network) newServer(handler http.Handler) *http.Server {
	return &http.Server{
		Handler: handler, IdleTimeout: keepAlive, ReadHeaderTimeout: time.Minute,
		ConnContext: func(ctx context.Context, conn net.Conn) context.Context {
			ctx, end := context.WithCancel(ctx)
			n.track(conn, end)
			return ctx
		},
		ConnState: func(conn net.Conn, state http.ConnState) {
			if state == http.StateClosed || state == http.StateHijacked {
				n.untrack(conn)
			}
		},
	}
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
	n.drop(func() {})
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
			if !n.track(conn, func() {}) {
				_ = conn.Close() // the instance is closing
				return
			}
			n.serving.Spawn(func() {
				serve(conn)
				n.untrack(conn)
				_ = conn.Close() // the peer has gone or has to go
			})
		}
	})
}

// track keeps a connection for drop. end ends its requests.
func (n *network) track(conn net.Conn, end context.CancelFunc) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.closed {
		n.open[conn] = end
	}
	return !n.closed
}

func (n *network) untrack(conn net.Conn) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if end := n.open[conn]; end != nil {
		end()
	}
	delete(n.open, conn)
}

// drop closes all connections, as the end of a process does. Their requests end first, so they see nothing of the process that restart begins.
func (n *network) drop(restart func()) {
	n.mu.Lock()
	open := n.open
	n.open = make(map[net.Conn]context.CancelFunc)
	n.mu.Unlock()
	for _, end := range open {
		end()
	}
	restart()
	for conn := range open {
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

package connlimit

import (
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// Config holds the limits of a listener.
type Config struct {
	Most       int            // open connections
	PerAddress int            // open connections of one address, 0 for no bound
	Trusted    []netip.Prefix // addresses to which PerAddress does not apply
	// IdleWhenCrowded is how long a connection may be idle while three quarters of Most are in use.
	IdleWhenCrowded time.Duration
	Logger          *slog.Logger
}

// leastIdle is how long a connection must have been idle before it makes room for another one. A client that has just connected, or has
// just been served, may be about to send a request.
const leastIdle = time.Second

// Counts are the connections that were closed since the program started, to leave room for others.
type Counts struct {
	Refused uint64 // new connections of an address that had its share, none of them idle
	Idle    uint64 // idle connections, closed for a new one or while few were left
}

// Listener is a net.Listener whose connections are bounded. The http.Server that serves them must have ConnState as its hook.
type Listener struct {
	net.Listener
	cfg Config

	freed  chan struct{} // signals that a connection was closed or became idle
	closed chan struct{}
	close  sync.Once

	mu        sync.Mutex // guards the rest, and the lists that connections are in
	open      int
	idle      list // idle connections of all addresses
	addresses map[netip.Prefix]*address
	counts    Counts
	logged    time.Time // when the log last reported that an address has its share
}

// address holds the connections of one address.
type address struct {
	key  netip.Prefix
	open int
	idle list
}

// Listen returns a listener that bounds the connections of inner.
func Listen(inner net.Listener, cfg Config) *Listener {
	return &Listener{
		Listener: inner, cfg: cfg, freed: make(chan struct{}, 1), closed: make(chan struct{}), addresses: map[netip.Prefix]*address{},
		idle: list{of: ofAll},
	}
}

// Accept returns the next connection within the limits.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		inner, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if c := l.admit(inner); c != nil {
			return c, nil
		}
		_ = inner.Close()
	}
}

// Close closes the listener, and ends a wait in Accept.
func (l *Listener) Close() error {
	l.close.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// Counts returns the counts so far.
func (l *Listener) Counts() Counts {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.counts
}

// admit adds a connection to the open ones, and waits if there are too many. It returns nil if the connection is refused or the listener
// was closed.
func (l *Listener) admit(inner net.Conn) *conn {
	remote := remoteOf(inner)
	key := keyOf(remote)
	l.mu.Lock()
	defer l.mu.Unlock()
	if from := l.addresses[key]; from != nil && l.bounds(remote) && from.open >= l.cfg.PerAddress && !l.shed(from.idle.first, leastIdle) {
		l.refuse(key)
		return nil
	}
	for l.open >= l.cfg.Most && !l.shed(l.idle.first, leastIdle) {
		if !l.wait() {
			return nil
		}
	}
	c := &conn{Conn: inner, listener: l, from: l.addresses[key]}
	if c.from == nil {
		c.from = &address{key: key, idle: list{of: ofAddress}}
		l.addresses[key] = c.from
	}
	l.open++
	c.from.open++
	l.rests(c)
	for 4*l.open >= 3*l.cfg.Most && l.shed(l.idle.first, l.cfg.IdleWhenCrowded) {
	}
	return c
}

// wait waits until a connection may have ended, or may be closed. It returns false if the listener was closed. The caller holds l.mu, which
// is unlocked during the wait.
func (l *Listener) wait() bool {
	var due <-chan time.Time
	if first := l.idle.first; first != nil {
		timer := time.NewTimer(leastIdle - time.Since(first.since))
		defer timer.Stop()
		due = timer.C
	}
	l.mu.Unlock()
	defer l.mu.Lock()
	select {
	case <-l.freed:
	case <-due:
	case <-l.closed:
		return false
	}
	return true
}

// bounds reports whether PerAddress applies to an address. It does not apply to a peer without a network address, as on a unix socket.
func (l *Listener) bounds(remote netip.Addr) bool {
	return l.cfg.PerAddress > 0 && remote.IsValid() && !slices.ContainsFunc(l.cfg.Trusted, func(p netip.Prefix) bool { return p.Contains(remote) })
}

// refuse counts a connection that is not admitted. The caller holds l.mu.
func (l *Listener) refuse(key netip.Prefix) {
	l.counts.Refused++
	if now := time.Now(); now.Sub(l.logged) >= time.Minute {
		l.logged = now
		l.cfg.Logger.Warn("a client's address has its share of the connections, and more are refused", "address", key.String(), "most", l.cfg.PerAddress,
			"refused", l.counts.Refused)
	}
}

// shed closes a connection if it has been idle for at least this long, and reports whether it did. c may be nil. The caller holds l.mu.
func (l *Listener) shed(c *conn, idle time.Duration) bool {
	if c == nil || time.Since(c.since) < idle {
		return false
	}
	l.counts.Idle++
	l.leaves(c)
	_ = c.Conn.Close()
	return true
}

// rests marks an open connection as idle. The caller holds l.mu.
func (l *Listener) rests(c *conn) {
	if c.left || c.resting {
		return
	}
	c.resting, c.since = true, time.Now()
	l.idle.push(c)
	c.from.idle.push(c)
	l.wake()
}

// works marks a connection as busy. The caller holds l.mu.
func (l *Listener) works(c *conn) {
	if c.resting {
		c.resting = false
		l.idle.remove(c)
		c.from.idle.remove(c)
	}
}

// leaves removes a connection from the open ones, once. The caller holds l.mu.
func (l *Listener) leaves(c *conn) {
	if c.left {
		return
	}
	l.works(c)
	c.left = true
	l.open--
	if c.from.open--; c.from.open == 0 {
		delete(l.addresses, c.from.key)
	}
	l.wake()
}

func (l *Listener) wake() {
	select {
	case l.freed <- struct{}{}:
	default:
	}
}

// ConnState is the hook of http.Server that reports what a connection does.
func (l *Listener) ConnState(serving net.Conn, state http.ConnState) {
	c, ok := serving.(*conn)
	if !ok {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch state {
	case http.StateActive:
		l.works(c)
	case http.StateIdle:
		l.rests(c)
	}
}

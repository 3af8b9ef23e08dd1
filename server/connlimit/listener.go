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

// Config says how many connections a listener has.
type Config struct {
	Most       int            // at once
	PerAddress int            // of one address at once, 0 for no bound
	Trusted    []netip.Prefix // the addresses that PerAddress does not bind
	// IdleWhenCrowded is how long a connection may be idle while three quarters of Most are in use.
	IdleWhenCrowded time.Duration
	Logger          *slog.Logger
}

// leastIdle is how long a connection has been idle before it makes room for another one. A client that has just connected, or has just been
// served, may be about to ask.
const leastIdle = time.Second

// Counts are connections that were closed for the sake of others since the start.
type Counts struct {
	Refused uint64 // new ones of an address that had its share, none of them idle
	Idle    uint64 // idle ones, in whose place another was accepted, or while few were left
}

// Listener is a net.Listener whose connections are bounded. ConnState has to be that of the http.Server that serves them.
type Listener struct {
	net.Listener
	cfg Config

	freed  chan struct{} // has something when a connection was closed or became idle
	closed chan struct{}
	close  sync.Once

	mu        sync.Mutex // guards the rest, and the lists that connections are in
	open      int
	idle      list // of all addresses
	addresses map[netip.Prefix]*address
	counts    Counts
	logged    time.Time // when the log last said that an address has its share
}

// address is what one address has.
type address struct {
	key  netip.Prefix
	open int
	idle list
}

// Listen bounds the connections of a listener.
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

// Close ends the listener, and a wait in Accept.
func (l *Listener) Close() error {
	l.close.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// Counts returns what was counted until now.
func (l *Listener) Counts() Counts {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.counts
}

// admit adds a connection to the open ones, and waits if there are too many. nil says that the connection was refused.
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

// wait returns when a connection may have ended, or may be closed now; false says that the listener was closed. l.mu is held, but not
// meanwhile.
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

// bounds reports whether an address has no more than its share. What is no address, as the peer of a unix socket, has none.
func (l *Listener) bounds(remote netip.Addr) bool {
	return l.cfg.PerAddress > 0 && remote.IsValid() && !slices.ContainsFunc(l.cfg.Trusted, func(p netip.Prefix) bool { return p.Contains(remote) })
}

// refuse counts a connection that is not admitted. l.mu is held.
func (l *Listener) refuse(key netip.Prefix) {
	l.counts.Refused++
	if now := time.Now(); now.Sub(l.logged) >= time.Minute {
		l.logged = now
		l.cfg.Logger.Warn("a client's address has its share of the connections, and more are refused", "address", key.String(), "most", l.cfg.PerAddress,
			"refused", l.counts.Refused)
	}
}

// shed closes a connection if it has been idle for that long. c may be nil. l.mu is held.
func (l *Listener) shed(c *conn, idle time.Duration) bool {
	if c == nil || time.Since(c.since) < idle {
		return false
	}
	l.counts.Idle++
	l.leaves(c)
	_ = c.Conn.Close()
	return true
}

// rests makes an open connection an idle one. l.mu is held.
func (l *Listener) rests(c *conn) {
	if c.left || c.resting {
		return
	}
	c.resting, c.since = true, time.Now()
	l.idle.push(c)
	c.from.idle.push(c)
	l.wake()
}

// works ends that a connection is idle. l.mu is held.
func (l *Listener) works(c *conn) {
	if c.resting {
		c.resting = false
		l.idle.remove(c)
		c.from.idle.remove(c)
	}
}

// leaves ends a connection, once. l.mu is held.
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

// ConnState is told what a connection does; it is a hook of http.Server.
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

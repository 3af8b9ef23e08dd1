// Package connlimit bounds the connections of clients. It promises that
//
//   - the number of open connections is bounded. At the bound a new one replaces the one that has been idle, or has sent nothing, for
//     longest, as nginx does when worker_connections are used up. It waits to be accepted only while every open one is being served;
//   - a connection that serves a request is never closed. A request that arrives while its idle connection is closed is lost, as with
//     every server that closes idle connections.
package connlimit

import (
	"container/list"
	"net"
	"net/http"
	"sync"
)

// Listener is a net.Listener whose connections are bounded. The http.Server that serves them must have ConnState as its hook.
type Listener struct {
	net.Listener
	most int

	mu     sync.Mutex // guards the rest, and the fields of connections
	freed  sync.Cond  // a connection was closed or became idle, or the listener was closed
	open   int
	idle   list.List // of *conn, the longest idle first
	shed   uint64
	closed bool
}

type conn struct {
	net.Conn
	listener *Listener
	left     bool          // closed
	idle     *list.Element // nil while it serves a request
}

// Listen bounds the open connections of inner.
func Listen(inner net.Listener, most int) *Listener {
	l := &Listener{Listener: inner, most: most}
	l.freed.L = &l.mu
	return l
}

// Accept returns the next connection, within the bound.
func (l *Listener) Accept() (net.Conn, error) {
	inner, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.open >= l.most {
		switch first := l.idle.Front(); {
		case first != nil:
			l.shed++
			longest := first.Value.(*conn) //nolint:forcetypeassert // the list has nothing else
			l.leaves(longest)
			_ = longest.Conn.Close()
		case l.closed:
			_ = inner.Close()
			return nil, net.ErrClosed
		default:
			l.freed.Wait()
		}
	}
	c := &conn{Conn: inner, listener: l}
	l.open++
	l.rests(c)
	return c, nil
}

// Close closes the listener, and ends a wait in Accept.
func (l *Listener) Close() error {
	l.mu.Lock()
	l.closed = true
	l.freed.Signal()
	l.mu.Unlock()
	return l.Listener.Close()
}

// Shed returns how many idle connections have made room for others.
func (l *Listener) Shed() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.shed
}

func (c *conn) Close() error {
	c.listener.mu.Lock()
	c.listener.leaves(c)
	c.listener.mu.Unlock()
	return c.Conn.Close()
}

// rests and works mark a connection as idle or busy. The caller holds l.mu.
func (l *Listener) rests(c *conn) {
	if !c.left && c.idle == nil {
		c.idle = l.idle.PushBack(c)
		l.freed.Signal()
	}
}

func (l *Listener) works(c *conn) {
	if c.idle != nil {
		l.idle.Remove(c.idle)
		c.idle = nil
	}
}

// leaves removes a connection from the open ones, once. The caller holds l.mu.
func (l *Listener) leaves(c *conn) {
	if !c.left {
		l.works(c)
		c.left = true
		l.open--
		l.freed.Signal()
	}
}

// ConnState is the hook of http.Server that reports the state of a connection.
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

package http1

import (
	"net"
	"sync"
	"time"
)

// Conn is a connection that may serve one request after another.
type Conn interface {
	net.Conn
	// Quiet reports whether the peer has neither sent unread bytes nor closed the connection. It must not wait, and is called while nothing
	// reads.
	Quiet() bool
}

type peer struct{ scheme, authority string }

// pool keeps idle connections. It takes the one that was used last, so that surplus ones grow old.
type pool struct {
	most int
	keep time.Duration
	lost func(scheme, authority string) // may be nil

	mu    sync.Mutex // guards the rest
	idle  map[peer][]resting
	timer *time.Timer // nil while nothing is kept
}

type resting struct {
	conn  Conn
	since time.Time
}

// expired uses both clocks: the monotonic one stands still while a machine is suspended.
func (p *pool) expired(r resting, now time.Time) bool {
	return now.Sub(r.since) >= p.keep || now.Round(0).Sub(r.since.Round(0)) >= p.keep
}

func (p *pool) put(to peer, conn Conn) {
	p.mu.Lock()
	kept := len(p.idle[to]) < p.most
	if kept {
		p.idle[to] = append(p.idle[to], resting{conn, time.Now()})
		if p.timer == nil {
			p.timer = time.AfterFunc(p.keep, p.sweep)
		}
	}
	p.mu.Unlock()
	if !kept {
		_ = conn.Close()
	}
}

func (p *pool) take(to peer) Conn {
	for {
		r, ok := p.pop(to)
		if !ok {
			return nil
		}
		expired := p.expired(r, time.Now())
		if !expired && r.conn.Quiet() {
			return r.conn
		}
		_ = r.conn.Close()
		if !expired {
			p.tell(to)
		}
	}
}

// check drops the idle connections, and calls Lost, if the peer has ended the last used one before it expired.
func (p *pool) check(to peer) {
	p.mu.Lock()
	all := p.idle[to]
	lost := len(all) > 0 && !p.expired(all[len(all)-1], time.Now()) && !all[len(all)-1].conn.Quiet()
	p.mu.Unlock()
	if lost {
		p.drop(to)
		p.tell(to)
	}
}

func (p *pool) tell(to peer) {
	if p.lost != nil {
		p.lost(to.scheme, to.authority)
	}
}

func (p *pool) pop(to peer) (last resting, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := p.idle[to]
	if len(all) == 0 {
		return resting{}, false
	}
	last, all[len(all)-1] = all[len(all)-1], resting{}
	p.idle[to] = all[:len(all)-1]
	return last, true
}

func (p *pool) sweep() {
	p.mu.Lock()
	var old []resting
	now := time.Now()
	next := time.Duration(-1)
	for to, all := range p.idle {
		n := 0
		for n < len(all) && p.expired(all[n], now) {
			n++
		}
		old = append(old, all[:n]...)
		if n == len(all) {
			delete(p.idle, to)
			continue
		}
		if n > 0 {
			kept := copy(all, all[n:])
			clear(all[kept:])
			p.idle[to] = all[:kept]
		}
		if left := p.keep - now.Sub(p.idle[to][0].since); next < 0 || left < next {
			next = left
		}
	}
	if p.timer = nil; next >= 0 {
		p.timer = time.AfterFunc(next, p.sweep)
	}
	p.mu.Unlock()
	closeAll(old)
}

func (p *pool) drop(to peer) {
	p.mu.Lock()
	dropped := p.idle[to]
	delete(p.idle, to)
	p.mu.Unlock()
	closeAll(dropped)
}

func (p *pool) dropAll() {
	p.mu.Lock()
	var dropped []resting
	for _, all := range p.idle {
		dropped = append(dropped, all...)
	}
	clear(p.idle)
	if p.timer != nil {
		p.timer.Stop()
		p.timer = nil
	}
	p.mu.Unlock()
	closeAll(dropped)
}

// closeAll runs without the pool's lock: over TLS each goodbye may wait five seconds for its peer (crypto/tls, Conn.Close).
func closeAll(connections []resting) {
	for _, r := range connections {
		_ = r.conn.Close()
	}
}

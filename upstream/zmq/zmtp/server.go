package zmtp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/go-zeromq/zmq4"
)

// An accept fails, for example, when file descriptors run out. Connections wait in the kernel during the pause.
const (
	firstPause = 5 * time.Millisecond
	mostPause  = 500 * time.Millisecond
)

// Server receives messages from PUSH sockets that connect to it.
type Server struct {
	Limits Limits
	// Handle gets each message, valid during the call: one peer's in order, several peers' at once. While it runs, its peer waits.
	// If it panics, the peer loses its connection.
	Handle func(frames [][]byte)
	Logger *slog.Logger
}

type serving struct {
	*Server
	limits  Limits
	log     *slog.Logger
	door    door
	full    Seldom // log lines about peers for which no place was free
	refused Seldom // log lines about failed accepts
	broken  Seldom // log lines about peers that break the protocol
}

// Serve accepts peers on l until ctx ends (it then returns the cause of ctx) or until l is closed. It closes l. When it returns, all
// its goroutines have ended.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	v := &serving{Server: s, limits: s.Limits.withDefaults(), log: orDiscard(s.Logger)}
	v.door.most = v.limits.MaxPeers
	var peers sync.WaitGroup
	defer peers.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { l.Close() })()
	defer l.Close()
	pause := firstPause
	for {
		conn, err := l.Accept()
		switch {
		case err == nil:
			pause = firstPause
			v.door.enter(conn)
			peers.Go(func() { v.serve(ctx, conn) })
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("accept zeromq peers: %w", err)
		default:
			if v.refused.Due() {
				v.log.Warn("can't accept zeromq peers; retrying", "error", err)
			}
			wait(ctx, pause)
			pause = min(2*pause, mostPause)
		}
	}
}

func (v *serving) serve(ctx context.Context, conn net.Conn) {
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	p, err := introduce(conn, zmq4.Pull, v.limits)
	if err != nil {
		v.door.turnAway(conn)
		v.left(ctx, conn, err)
		return
	}
	if !v.door.admit(conn) {
		if v.full.Due() {
			v.log.Warn("a zeromq peer is refused: there are too many", "peer", conn.RemoteAddr().String(), "most", v.limits.MaxPeers)
		}
		return
	}
	v.log.Debug("a zeromq peer has come", "peer", conn.RemoteAddr().String())
	err = v.receive(p)
	v.door.leave() // before the log line appears
	v.left(ctx, conn, err)
}

func (v *serving) receive(p *peer) error {
	for {
		frames, err := p.receive()
		if err != nil {
			return err
		}
		if err := handled(v.Handle, frames); err != nil {
			return err
		}
	}
}

func (v *serving) left(ctx context.Context, conn net.Conn, err error) {
	if ctx.Err() != nil {
		return
	}
	address := conn.RemoteAddr().String()
	var panicked *panicError
	switch {
	case errors.As(err, &panicked):
		v.log.Error("a zeromq message made its handler panic", "peer", address, "reason", panicked.reason, "stack", string(panicked.stack))
	case hungUp(err):
		v.log.Debug("a zeromq peer has left", "peer", address, "error", err)
	case v.broken.Due():
		v.log.Warn("a zeromq peer doesn't speak the protocol", "peer", address, "error", err)
	}
}

type panicError struct {
	reason any
	stack  []byte
}

func (e *panicError) Error() string { return fmt.Sprintf("handler panics: %v", e.reason) }

func handled(handle func(frames [][]byte), frames [][]byte) (err error) {
	defer func() {
		if reason := recover(); reason != nil {
			err = &panicError{reason, debug.Stack()}
		}
	}()
	handle(frames)
	return nil
}

// door counts the connections of a Server. Peers that have introduced themselves have places of their own, so that silent
// connections can't take them. If there are too many silent connections, the oldest is closed.
type door struct {
	most int

	mu     sync.Mutex // guards the rest
	silent []net.Conn // oldest first
	peers  int
}

func (d *door) enter(conn net.Conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.silent = append(d.silent, conn)
	if len(d.silent) > d.most {
		d.silent[0].Close() // its goroutine notices
		d.silent = slices.Delete(d.silent, 0, 1)
	}
}

// admit gives a place to a connection that has introduced itself, until leave. If no place is free, it returns false.
func (d *door) admit(conn net.Conn) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.remove(conn) || d.peers == d.most {
		return false
	}
	d.peers++
	return true
}

func (d *door) turnAway(conn net.Conn) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.remove(conn)
}

func (d *door) leave() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.peers--
}

// remove takes a connection out of the silent ones and reports whether it was among them. d.mu is held.
func (d *door) remove(conn net.Conn) bool {
	i := slices.Index(d.silent, conn)
	if i >= 0 {
		d.silent = slices.Delete(d.silent, i, i+1)
	}
	return i >= 0
}

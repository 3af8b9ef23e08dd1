// Package zmtp speaks ZeroMQ's wire protocol with engines: ZMTP 3.0 with the NULL mechanism (https://rfc.zeromq.org/spec/23/). It listens
// to their notifications ([Server]), subscribes to their KV events ([Subscriber]) and asks for missed events ([Ask]).
//
// It uses only the protocol of zmq4 v0.17.0, one connection at a time (peer.go). A guard reads the headers of frames before zmq4
// (guard.go), because zmq4 allocates as many bytes as a header announces and panics if that is too much. The package does not use zmq4's
// sockets: they greet one peer at a time, so a silent peer keeps all others out; they answer no heartbeats; and they give up publishers
// that are away for more than a few seconds.
//
// It promises that
//
//   - no peer stops or slows others. Each peer has a goroutine, its introduction has a time limit, and a peer that breaks
//     the protocol loses only its own connection (server.go). A slow Handle slows only its own peer, through TCP;
//   - memory is bounded by Limits, whatever peers announce;
//   - an accept that fails is tried again, after a pause that grows up to half a second (server.go);
//   - libzmq's heartbeats are answered;
//   - a publisher that is away, restarts or moves is dialled again for ever (subscriber.go);
//   - everything that Serve, Run and Ask have started is over when they return.
//
// There is no authentication: whoever reaches the port may send anything. There is no delivery confirmation either: messages under way are
// lost when a connection ends, as with libzmq.
//
// The package imports no other package of this module. Its sub-package zmqtest runs libzmq's side of tests.
package zmtp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// Limits bounds what one peer, and all peers together, may use. Zero values mean the defaults.
type Limits struct {
	MaxFrame int // bytes; 64 KiB
	MaxParts int // frames of a message; 8
	MaxPeers int // peers of a Server that have introduced themselves, and the same number that have not; 64
	// Handshake is the time limit for dialling a peer and until it has introduced itself; 10 s. A peer sends as soon as it has our
	// introduction, and loses those messages if we then give up waiting for its own. So the limit is far above a pause of a loaded machine.
	Handshake time.Duration
}

func (l Limits) withDefaults() Limits {
	return Limits{
		MaxFrame: cmp.Or(l.MaxFrame, 64<<10), MaxParts: cmp.Or(l.MaxParts, 8), MaxPeers: cmp.Or(l.MaxPeers, 64),
		Handshake: cmp.Or(l.Handshake, 10*time.Second),
	}
}

// ParseEndpoint returns the host:port of tcp://host:port to connect to.
func ParseEndpoint(text string) (hostPort string, err error) {
	hostPort, tcp := strings.CutPrefix(text, "tcp://")
	host, port, err := net.SplitHostPort(hostPort)
	if n, bad := strconv.ParseUint(port, 10, 16); err != nil || bad != nil || n == 0 || !tcp || host == "" || strings.ContainsAny(host, "*/?#@ \t\r\n") {
		return "", fmt.Errorf("endpoint %q: want tcp://host:port with a port from 1 to 65535", text)
	}
	return hostPort, nil
}

// Seldom lets one log line through per minute, because peers can cause any number of them.
type Seldom struct{ last atomic.Int64 } // Unix seconds

// Due reports whether a line may be logged now.
func (s *Seldom) Due() bool {
	now, last := time.Now().Unix(), s.last.Load()
	return now-last >= 60 && s.last.CompareAndSwap(last, now)
}

func hungUp(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ETIMEDOUT)
}

func orDiscard(logger *slog.Logger) *slog.Logger {
	return cmp.Or(logger, slog.New(slog.DiscardHandler))
}

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

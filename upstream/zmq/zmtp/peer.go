package zmtp

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"time"

	"github.com/go-zeromq/zmq4"
	"github.com/go-zeromq/zmq4/security/null"
)

// peer is a connection whose other side has introduced itself. A single goroutine must use all of it: zmq4 writes the PONG to a
// heartbeat while it reads, and in two pieces.
type peer struct {
	conn *zmq4.Conn
}

// introduce exchanges greetings and introductions, within the time limit. Our greeting goes out first: libzmq sends 10 bytes of its
// own and waits for ours.
func introduce(conn net.Conn, socket zmq4.SocketType, limits Limits) (p *peer, err error) {
	defer recovered(&err)
	if err := conn.SetDeadline(time.Now().Add(limits.Handshake)); err != nil {
		return nil, err
	}
	opened, err := zmq4.Open(&guard{Conn: conn, buffered: bufio.NewReaderSize(conn, readBuffer), limits: limits, greeting: greetingSize}, null.Security(), socket, nil, false, nil)
	if err != nil {
		return nil, err
	}
	return &peer{opened}, conn.SetReadDeadline(time.Time{})
}

// receive returns the frames of the next message. It skips commands; zmq4 has already answered heartbeats.
func (p *peer) receive() (frames [][]byte, err error) {
	defer recovered(&err)
	for {
		received, err := p.conn.RecvMsg()
		if err != nil {
			return nil, err
		}
		if received.Type != zmq4.CmdMsg {
			return received.Frames, nil
		}
	}
}

func (p *peer) send(frames ...[]byte) error {
	return p.conn.SendMsg(zmq4.NewMsgFrom(frames...))
}

// recovered turns a panic into an error. zmq4 panics at some bytes that peers may send: an unknown type of socket, and metadata that
// are shorter than their announced lengths (v0.17.0, IsCompatible in socket_types.go, Property.Write in protocol.go).
func recovered(err *error) {
	if reason := recover(); reason != nil {
		*err = fmt.Errorf("zmq4: %v", reason)
	}
}

// with connects to an endpoint and runs talk with the peer until talk returns or ctx ends. If ctx has ended, the error is the cause
// of ctx.
func with(ctx context.Context, endpoint string, socket zmq4.SocketType, limits Limits, talk func(*peer) error) (err error) {
	defer func() {
		if err != nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
	}()
	address, err := ParseEndpoint(endpoint)
	if err != nil {
		return err
	}
	limits = limits.withDefaults()
	dialer := net.Dialer{Timeout: limits.Handshake}
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	p, err := introduce(conn, socket, limits)
	if err != nil {
		return err
	}
	return talk(p)
}

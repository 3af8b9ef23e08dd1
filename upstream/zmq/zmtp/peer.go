package zmtp

import (
	"bytes"
	"fmt"
	"net"
	"time"

	"github.com/go-zeromq/zmq4"
	"github.com/go-zeromq/zmq4/security/null"
)

// peer is a connection whose other side has introduced itself. A single goroutine must use all of it: zmq4 writes the PONG to a
// heartbeat while it reads, and in two pieces.
type peer struct {
	conn     *zmq4.Conn
	address  string
	identity []byte
}

// introduce exchanges greetings and introductions, within the time limit. Our greeting goes out first: libzmq sends 10
// bytes of its own and waits for ours.
func introduce(conn net.Conn, kind Kind, limits Limits) (p *peer, err error) {
	defer recovered(&err)
	if kind.socket() == "" {
		return nil, fmt.Errorf("no kind of socket: %d", kind)
	}
	if err := conn.SetDeadline(time.Now().Add(limits.Handshake)); err != nil {
		return nil, err
	}
	opened, err := zmq4.Open(newGuard(conn, limits), null.Security(), kind.socket(), nil, false, nil)
	if err != nil {
		return nil, err
	}
	p = &peer{conn: opened, address: conn.RemoteAddr().String()}
	if name := opened.Peer.Meta["Identity"]; name != "" {
		p.identity = []byte(name)
	}
	return p, conn.SetReadDeadline(time.Time{})
}

// receive returns the next message. It skips commands; zmq4 has already answered heartbeats.
func (p *peer) receive() (m Message, err error) {
	defer recovered(&err)
	for {
		received, err := p.conn.RecvMsg()
		if err != nil {
			return Message{}, err
		}
		if received.Type != zmq4.CmdMsg {
			return Message{Peer: p.address, Identity: p.identity, Frames: received.Frames}, nil
		}
	}
}

// send sends a message.
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

// subscribe asks for the messages that begin with topic (ZMTP 3.0, "Publish-Subscribe").
func (p *peer) subscribe(topic string) error {
	return p.send(append([]byte{1}, topic...))
}

// hasTopic reports whether a message begins with the topic. It must be checked because a publisher need not filter.
func hasTopic(m Message, topic string) bool {
	return len(m.Frames) > 0 && bytes.HasPrefix(m.Frames[0], []byte(topic))
}

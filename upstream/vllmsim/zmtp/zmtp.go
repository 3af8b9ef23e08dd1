// Package zmtp is the simulated engines' side of ZeroMQ: ZMTP 3.0 (rfc.zeromq.org/spec/23) with the mechanism NULL, one connection at a time.
// It imports no other package of the module.
package zmtp

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
)

// Flags of a frame.
const (
	flagMore    = 0x01
	flagLong    = 0x02
	flagCommand = 0x04
)

// maxFrame bounds the frames of a peer, which sends only subscriptions, questions and commands.
const maxFrame = 1 << 16

var errPeer = errors.New("the peer breaks ZMTP 3")

// Peer is a connection after its handshake. One goroutine reads it, and one sends.
type Peer struct {
	conn net.Conn
	in   *bufio.Reader
}

// Open exchanges greetings and READY. kind is the type of our socket. other is the required type of the peer's, "" for any.
func Open(conn net.Conn, kind, other string) (*Peer, error) {
	p := &Peer{conn, bufio.NewReader(conn)}
	greeting := make([]byte, 64)
	copy(greeting, "\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x03\x00NULL")
	if _, err := conn.Write(greeting); err != nil {
		return nil, fmt.Errorf("greet: %w", err)
	}
	theirs := make([]byte, len(greeting))
	if _, err := io.ReadFull(p.in, theirs); err != nil {
		return nil, fmt.Errorf("read greeting: %w", err)
	}
	if theirs[0] != 0xff || theirs[9] != 0x7f || theirs[10] < 3 || !bytes.HasPrefix(theirs[12:], []byte("NULL\x00")) {
		return nil, errPeer
	}
	ready := binary.BigEndian.AppendUint32([]byte("\x05READY\x0bSocket-Type"), uint32(len(kind)))
	if err := p.write(flagCommand, append(ready, kind...)); err != nil {
		return nil, err
	}
	flags, body, err := p.frame()
	if err != nil || flags&flagCommand == 0 || !bytes.HasPrefix(body, []byte("\x05READY")) || !bytes.Contains(body, []byte(other)) {
		return nil, errors.Join(errPeer, err)
	}
	return p, nil
}

func (p *Peer) frame() (flags byte, body []byte, err error) {
	var head [9]byte
	if _, err := io.ReadFull(p.in, head[:2]); err != nil {
		return 0, nil, fmt.Errorf("read frame: %w", err)
	}
	size := uint64(head[1])
	if head[0]&flagLong != 0 {
		if _, err := io.ReadFull(p.in, head[2:]); err != nil {
			return 0, nil, fmt.Errorf("read frame: %w", err)
		}
		size = binary.BigEndian.Uint64(head[1:])
	}
	if size > maxFrame {
		return 0, nil, errPeer
	}
	body = make([]byte, size)
	_, err = io.ReadFull(p.in, body)
	return head[0], body, err
}

// Receive reads the frames of a message. It skips commands, but answers libzmq's heartbeats: PING has a time to live of two bytes before the
// context that PONG returns.
func (p *Peer) Receive() (frames [][]byte, err error) {
	for {
		flags, body, err := p.frame()
		if err != nil {
			return nil, err
		}
		if flags&flagCommand == 0 {
			if frames = append(frames, body); flags&flagMore == 0 {
				return frames, nil
			}
		} else if context, ok := bytes.CutPrefix(body, []byte("\x04PING")); ok && len(context) >= 2 {
			if err := p.write(flagCommand, append([]byte("\x04PONG"), context[2:]...)); err != nil {
				return nil, err
			}
		}
	}
}

func (p *Peer) write(flags byte, body []byte) error {
	head := []byte{flags, byte(len(body))}
	if len(body) > 255 {
		head = binary.BigEndian.AppendUint64([]byte{flags | flagLong}, uint64(len(body)))
	}
	if _, err := p.conn.Write(append(head, body...)); err != nil {
		return fmt.Errorf("write frame: %w", err)
	}
	return nil
}

// Send writes a message.
func (p *Peer) Send(frames ...[]byte) error {
	for n, frame := range frames {
		flags := byte(flagMore)
		if n == len(frames)-1 {
			flags = 0
		}
		if err := p.write(flags, frame); err != nil {
			return err
		}
	}
	return nil
}

// Close closes the connection.
func (p *Peer) Close() error { return p.conn.Close() }

package connector

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"
)

const (
	// highWater is libzmq's SNDHWM: how many messages wait while no peer is connected, before push blocks.
	highWater = 1000
	// redial is libzmq's RECONNECT_IVL, in wall time.
	redial = 100 * time.Millisecond
	// handshakeTimeout bounds a handshake with a peer that is not a ZeroMQ socket, in wall time (HANDSHAKE_IVL is 30 s).
	handshakeTimeout = 5 * time.Second
	// longestFrame bounds the frames of a PULL socket, which sends only commands.
	longestFrame = 1 << 16
)

// notifier is a PUSH socket that connects (ZMTP 3.0, rfc.zeromq.org/spec/23, mechanism NULL). It keeps messages that it cannot send and
// delivers them to the next peer that listens.
type notifier struct {
	address func() string // "" while there is nobody to notify
	queue   chan []byte
}

func newNotifier(address func() string) *notifier {
	return &notifier{address: address, queue: make(chan []byte, highWater)}
}

// push queues a message of one frame. It blocks while the queue is full, and returns false if ctx ends.
func (n *notifier) push(ctx context.Context, message []byte) bool {
	select {
	case n.queue <- message:
		return true
	case <-ctx.Done():
		return false
	}
}

// run delivers until ctx ends.
func (n *notifier) run(ctx context.Context) {
	var unsent []byte // taken from the queue but not written
	for ctx.Err() == nil {
		if conn, err := n.connect(ctx); err == nil {
			unsent = n.deliver(ctx, conn, unsent)
		}
		select {
		case <-time.After(redial):
		case <-ctx.Done():
		}
	}
}

func (n *notifier) connect(ctx context.Context) (net.Conn, error) {
	address := n.address()
	if address == "" {
		return nil, errors.New("no address")
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("dial: %w", err)
	}
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now()) })() // the handshake ends if the engine ends
	if err := conn.SetDeadline(time.Now().Add(handshakeTimeout)); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	if err := shakeHands(conn); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, conn.SetDeadline(time.Time{})
}

// deliver writes messages until the connection or ctx ends, and returns a message that may not have arrived.
func (n *notifier) deliver(ctx context.Context, conn net.Conn, unsent []byte) []byte {
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		listen(conn) // ends with the connection
	}()
	defer func() {
		_ = conn.Close() // nothing is left to send
		<-gone
	}()
	for {
		if unsent == nil {
			select {
			case unsent = <-n.queue:
			case <-gone:
				return nil
			case <-ctx.Done():
				return nil
			}
		}
		if _, err := conn.Write(FrameOf(0, unsent)); err != nil {
			return unsent
		}
		unsent = nil
	}
}

// Flags of a frame.
const (
	frameLong    = 0x02
	FrameCommand = 0x04
)

// FrameOf returns a frame of ZMTP.
func FrameOf(flags byte, body []byte) []byte {
	if len(body) < 256 {
		return append([]byte{flags, byte(len(body))}, body...)
	}
	return append(binary.BigEndian.AppendUint64([]byte{flags | frameLong}, uint64(len(body))), body...)
}

// ReadFrame reads a frame of ZMTP.
func ReadFrame(r io.Reader) (flags byte, body []byte, err error) {
	var head [9]byte
	if _, err := io.ReadFull(r, head[:2]); err != nil {
		return 0, nil, fmt.Errorf("read frame: %w", err)
	}
	size := uint64(head[1])
	if head[0]&frameLong != 0 {
		if _, err := io.ReadFull(r, head[2:]); err != nil {
			return 0, nil, fmt.Errorf("read frame: %w", err)
		}
		size = binary.BigEndian.Uint64(head[1:])
	}
	if size > longestFrame {
		return 0, nil, fmt.Errorf("frame of %d bytes", size)
	}
	body = make([]byte, size)
	if _, err := io.ReadFull(r, body); err != nil {
		return 0, nil, fmt.Errorf("read frame: %w", err)
	}
	return head[0], body, nil
}

// shakeHands exchanges greetings and READY commands.
func shakeHands(conn io.ReadWriter) error {
	greeting := make([]byte, 64)
	copy(greeting, "\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x03\x00NULL")
	ready := []byte("\x05READY\x0bSocket-Type\x00\x00\x00\x04PUSH")
	if _, err := conn.Write(greeting); err != nil {
		return fmt.Errorf("greet: %w", err)
	}
	theirs := make([]byte, len(greeting))
	if _, err := io.ReadFull(conn, theirs); err != nil {
		return fmt.Errorf("read greeting: %w", err)
	}
	if theirs[0] != 0xff || theirs[9] != 0x7f || theirs[10] < 3 || !bytes.HasPrefix(theirs[12:], []byte("NULL\x00")) {
		return fmt.Errorf("greeting %x: not ZMTP 3 without security", theirs)
	}
	if _, err := conn.Write(FrameOf(FrameCommand, ready)); err != nil {
		return fmt.Errorf("send READY: %w", err)
	}
	flags, body, err := ReadFrame(conn)
	if err != nil {
		return err
	}
	if flags&FrameCommand == 0 || !bytes.HasPrefix(body, []byte("\x05READY")) || !bytes.Contains(body, []byte("\x00\x00\x00\x04PULL")) {
		return fmt.Errorf("%x: not READY of a PULL socket", body)
	}
	return nil
}

// listen reads until the connection ends and answers PING with PONG: libzmq's end may send heartbeats. This socket sends none itself, as
// LMCache does not.
func listen(conn net.Conn) {
	in := bufio.NewReader(conn)
	for {
		flags, body, err := ReadFrame(in)
		if err != nil {
			return
		}
		// PING has a time to live of two bytes before the context that PONG returns.
		if context, ok := bytes.CutPrefix(body, []byte("\x04PING")); ok && flags&FrameCommand != 0 && len(context) >= 2 {
			if _, err := conn.Write(FrameOf(FrameCommand, append([]byte("\x04PONG"), context[2:]...))); err != nil {
				return
			}
		}
	}
}

package connector

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"carryover/upstream/vllmsim/zmtp"
)

const (
	// highWater is libzmq's SNDHWM: how many messages wait without a connected peer before push blocks.
	highWater = 1000
	// redial is libzmq's RECONNECT_IVL, in wall time.
	redial = 100 * time.Millisecond
	// handshakeTimeout bounds a handshake with a peer that is no ZeroMQ socket, in wall time (HANDSHAKE_IVL is 30 s).
	handshakeTimeout = 5 * time.Second
)

// notifier is a PUSH socket that connects. It keeps unsent messages for the next peer that listens.
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

func (n *notifier) run(ctx context.Context) {
	var unsent []byte // taken from the queue but not written
	for ctx.Err() == nil {
		if peer, err := n.connect(ctx); err == nil {
			unsent = n.deliver(ctx, peer, unsent)
		}
		select {
		case <-time.After(redial):
		case <-ctx.Done():
		}
	}
}

func (n *notifier) connect(ctx context.Context) (*zmtp.Peer, error) {
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
	peer, err := zmtp.Open(conn, "PUSH", "PULL")
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return peer, conn.SetDeadline(time.Time{})
}

// deliver writes messages until the connection or ctx ends. It returns a message that may not have arrived.
func (n *notifier) deliver(ctx context.Context, peer *zmtp.Peer, unsent []byte) []byte {
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_, _ = peer.Receive() // a PULL socket sends heartbeats only; ends with the connection
	}()
	defer func() {
		_ = peer.Close() // nothing is left to send
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
		if err := peer.Send(unsent); err != nil {
			return unsent
		}
		unsent = nil
	}
}

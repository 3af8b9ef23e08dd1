package zmtp

import (
	"time"

	"github.com/go-zeromq/zmq4"
)

// Kind is the type of a socket.
type Kind int

// The kinds.
const (
	Pull   Kind = iota + 1 // of peers that are PUSH
	Router                 // of DEALER, REQ and ROUTER
	Sub                    // of PUB and XPUB
	Dealer                 // of ROUTER, REP and DEALER
)

// socket returns the name that the kind has on the wire, empty for none.
func (k Kind) socket() zmq4.SocketType {
	switch k {
	case Pull:
		return zmq4.Pull
	case Router:
		return zmq4.Router
	case Sub:
		return zmq4.Sub
	case Dealer:
		return zmq4.Dealer
	}
	return ""
}

// Limits bound what one peer and all of them may take. Zero values get the defaults.
type Limits struct {
	MaxFrame int // bytes; 64 KiB
	MaxParts int // frames of a message; 8
	MaxPeers int // peers of a Server that have introduced themselves, and as many that have not; 64
	// Handshake is until a peer has introduced itself, also for dialling it; 10 s. A peer that sends once it has our introduction loses
	// what it has sent if its own is given up after that, so that the limit is far above what a machine under load stands still.
	Handshake time.Duration
}

// withDefaults returns the limits without zero values.
func (l Limits) withDefaults() Limits {
	if l.MaxFrame <= 0 {
		l.MaxFrame = 64 << 10
	}
	if l.MaxParts <= 0 {
		l.MaxParts = 8
	}
	if l.MaxPeers <= 0 {
		l.MaxPeers = 64
	}
	if l.Handshake <= 0 {
		l.Handshake = 10 * time.Second
	}
	return l
}

// Message is one message of a peer. It is valid during the call.
type Message struct {
	Peer     string // host:port that the peer is connected from, of one connection at a time
	Identity []byte // what the peer calls itself, nil for nothing
	Frames   [][]byte
}

package zmtp

import "time"

// Limits bounds what one peer, and all peers together, may use. Zero values mean the defaults.
type Limits struct {
	MaxFrame int // bytes; 64 KiB
	MaxParts int // frames of a message; 8
	MaxPeers int // peers of a Server that have introduced themselves, and the same number that have not; 64
	// Handshake is the time limit for dialling a peer and until it has introduced itself; 10 s. A peer sends as soon as it has our
	// introduction, and loses those messages if we then give up waiting for its own. So the limit is far above a pause of a loaded machine.
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

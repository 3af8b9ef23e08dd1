package zmtp

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"time"
)

// The sizes of the wire.
const (
	greetingSize = 64
	shortHeader  = 2
	longHeader   = 9
	maxCommand   = 4 << 10 // READY has a socket type and an identity of 255 bytes, PING a context of 16
	readBuffer   = 4 << 10 // some 60 notifications of LMCache
)

// The flags of a frame.
const (
	flagMore    = 1 << 0
	flagLong    = 1 << 1
	flagCommand = 1 << 2
)

// The faults of a peer that the guard finds.
var (
	errFlags   = errors.New("frame with flags that the protocol doesn't have")
	errCommand = errors.New("command in the midst of a message, or with more frames")
)

// guard is a connection whose peer can't announce more than the limits allow: it follows the frames of what is read, and
// returns an error in the place of a header that breaks them. zmq4 sees no byte of such a header: it would allocate its size
// at once (8 GiB for nine bytes), and panic where that is too much (2^49).
//
// It is read by one goroutine.
type guard struct {
	net.Conn
	buffered *bufio.Reader
	limits   Limits

	greeting int              // bytes of it that are still to come
	header   [longHeader]byte // of the next frame
	have     int              // bytes of it that have been read
	body     uint64           // bytes of the frame that are still to come
	parts    int              // frames of the message that have been read
	err      error            // the first one
}

func newGuard(conn net.Conn, limits Limits) *guard {
	return &guard{Conn: conn, buffered: bufio.NewReaderSize(conn, readBuffer), limits: limits, greeting: greetingSize}
}

// Read reads from the connection. zmq4 reads headers and bodies one by one, which the buffer makes into fewer calls.
func (g *guard) Read(p []byte) (int, error) {
	if g.err != nil {
		return 0, g.err
	}
	n, err := g.buffered.Read(p)
	if bad := g.follow(p[:n]); bad != nil {
		g.err = bad
		return 0, bad
	}
	return n, err
}

// Write writes to the connection. A peer that doesn't read is given up.
func (g *guard) Write(p []byte) (int, error) {
	if err := g.SetWriteDeadline(time.Now().Add(g.limits.Handshake)); err != nil {
		return 0, err
	}
	return g.Conn.Write(p)
}

// follow goes through bytes that have been read.
func (g *guard) follow(p []byte) error {
	for len(p) > 0 {
		switch {
		case g.greeting > 0:
			n := min(g.greeting, len(p))
			g.greeting -= n
			p = p[n:]
		case g.body > 0:
			n := min(g.body, uint64(len(p)))
			g.body -= n
			p = p[n:]
		default:
			g.header[g.have] = p[0]
			g.have++
			p = p[1:]
			if err := g.frame(); err != nil {
				return err
			}
		}
	}
	return nil
}

// frame looks at what there is of a header, and begins the frame when that is whole.
func (g *guard) frame() error {
	flags := g.header[0]
	if flags&^(flagMore|flagLong|flagCommand) != 0 {
		return errFlags
	}
	command, more := flags&flagCommand != 0, flags&flagMore != 0
	if command && (more || g.parts > 0) {
		return errCommand
	}
	size, most := uint64(g.header[1]), uint64(g.limits.MaxFrame)
	if command {
		most = maxCommand
	}
	if flags&flagLong != 0 {
		if g.have < longHeader {
			return nil
		}
		size = binary.BigEndian.Uint64(g.header[1:])
	} else if g.have < shortHeader {
		return nil
	}
	if size > most {
		return fmt.Errorf("frame of %d bytes; %d are the most", size, most)
	}
	if g.parts++; g.parts > g.limits.MaxParts {
		return fmt.Errorf("message of more than %d frames", g.limits.MaxParts)
	}
	if !more {
		g.parts = 0
	}
	g.body, g.have = size, 0
	return nil
}

package zmtp

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"time"
)

const (
	greetingSize = 64
	shortHeader  = 2
	longHeader   = 9
	maxCommand   = 4 << 10 // READY has a socket type and an identity of 255 bytes, PING a context of 16
	readBuffer   = 4 << 10 // some 60 notifications of LMCache
)

const (
	flagMore    = 1 << 0
	flagLong    = 1 << 1
	flagCommand = 1 << 2
)

var (
	errFlags   = errors.New("frame with flags that the protocol doesn't have")
	errCommand = errors.New("command within a message, or of several frames")
)

// guard is a connection whose peer can't announce more than the limits allow. It follows the frames in the bytes that are read. In
// place of a header that breaks the limits it returns an error, and zmq4 sees no byte of that header: zmq4 would allocate the announced
// size at once (8 GiB for nine bytes), and panic if it is too much (2^49).
//
// Only one goroutine may read it.
type guard struct {
	net.Conn
	buffered *bufio.Reader
	limits   Limits

	greeting int              // missing bytes of the greeting
	header   [longHeader]byte // of the next frame
	have     int              // received bytes of the header
	body     uint64           // missing bytes of the frame's body
	parts    int              // received frames of the current message
	err      error            // the first error
}

// Read reads from the connection. zmq4 reads headers and bodies one by one; the buffer turns that into fewer system calls.
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

// Write writes to the connection, with a time limit for a peer that doesn't read.
func (g *guard) Write(p []byte) (int, error) {
	if err := g.SetWriteDeadline(time.Now().Add(g.limits.Handshake)); err != nil {
		return 0, err
	}
	return g.Conn.Write(p)
}

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

// frame checks the received bytes of a header, and begins the frame once the header is complete.
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
		return fmt.Errorf("frame of %d bytes; the limit is %d", size, most)
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

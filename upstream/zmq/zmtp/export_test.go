package zmtp

import (
	"net"

	"github.com/go-zeromq/zmq4"
)

// ReadAll introduces itself to the other side of a connection and returns what it sends until that ends, and why it ended.
func ReadAll(conn net.Conn, limits Limits) ([][][]byte, error) {
	p, err := introduce(conn, zmq4.Pull, limits.withDefaults())
	if err != nil {
		return nil, err
	}
	var all [][][]byte
	for {
		frames, err := p.receive()
		if err != nil {
			return all, err
		}
		all = append(all, frames)
	}
}

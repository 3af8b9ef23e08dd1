package zmtp

import (
	"bytes"
	"io"
	"net"
	"testing"
)

// said is a connection whose other side has said all that it will.
type said struct {
	net.Conn
	io.Reader
}

func (s said) Read(p []byte) (int, error) { return s.Reader.Read(p) }
func (said) Write(p []byte) (int, error)  { return len(p), nil }

// FuzzOpen_PeerSaysAnything has a peer answer a handshake, and go on, with any bytes: it ends with them.
func FuzzOpen_PeerSaysAnything(f *testing.F) {
	greeting := append([]byte("\xff\x00\x00\x00\x00\x00\x00\x00\x01\x7f\x03\x00NULL"), make([]byte, 48)...)
	ready := []byte("\x04\x1a\x05READY\x0bSocket-Type\x00\x00\x00\x04PULL")
	f.Add([]byte{})
	f.Add(greeting)
	f.Add(append(bytes.Clone(greeting), ready...))
	f.Add(append(append(bytes.Clone(greeting), ready...), "\x04\x0e\x04PING\x00\x00context"...))
	f.Add(append(append(bytes.Clone(greeting), ready...), "\x01\x01a\x00\x01b"...))
	f.Add(append(bytes.Clone(greeting), flagCommand|flagLong, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff))
	f.Fuzz(func(t *testing.T, text []byte) {
		p, err := Open(said{Reader: bytes.NewReader(text)}, "PUSH", "PULL")
		if err == nil && len(text) < len(greeting)+len(ready) {
			t.Errorf("a handshake of %d bytes was accepted", len(text))
		}
		for err == nil {
			var frames [][]byte
			frames, err = p.Receive()
			for _, frame := range frames {
				if len(frame) > maxFrame {
					t.Errorf("a frame of %d bytes was read", len(frame))
				}
			}
		}
	})
}

package zmtp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"github.com/go-zeromq/zmq4"
	"io"
	"net"
	"os"
	"testing"
	"time"
)

// stream is a connection whose peer has said everything already. It hands out few bytes at a time.
type stream struct {
	said []byte
	step int
}

func (s *stream) Read(p []byte) (int, error) {
	if len(s.said) == 0 {
		return 0, io.EOF
	}
	n := copy(p[:min(len(p), s.step)], s.said)
	s.said = s.said[n:]
	return n, nil
}

func (s *stream) Write(p []byte) (int, error)      { return len(p), nil }
func (s *stream) Close() error                     { return nil }
func (s *stream) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (s *stream) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (s *stream) SetDeadline(time.Time) error      { return nil }
func (s *stream) SetReadDeadline(time.Time) error  { return nil }
func (s *stream) SetWriteDeadline(time.Time) error { return nil }

// The limits of the fuzz target.
const (
	fuzzFrame = 64
	fuzzParts = 3
)

// messagesOf reads traffic by the grammar of ZMTP 3.0, up to its end or to what breaks it or the limits.
func messagesOf(b []byte) (all [][][]byte) {
	var message [][]byte
	for len(b) >= 2 {
		flags, size, header := b[0], uint64(b[1]), 2
		if flags&2 != 0 {
			if header = 9; len(b) < header {
				return all
			}
			size = binary.BigEndian.Uint64(b[1:])
		}
		command, more := flags&4 != 0, flags&1 != 0
		switch {
		case flags > 7, command && (more || message != nil), command && size > 4096, !command && size > fuzzFrame:
			return all
		}
		if uint64(len(b)-header) < size {
			return all
		}
		content := b[header : header+int(size)]
		b = b[header+int(size):]
		if command {
			if len(content) == 0 || int(content[0]) > len(content)-1 {
				return all
			}
			continue
		}
		if message = append(message, content); len(message) > fuzzParts {
			return all
		}
		if !more {
			all, message = append(all, message), nil
		}
	}
	return all
}

// readAll introduces itself to the other side of a connection and returns what it sends until that ends, and why it ended.
func readAll(conn net.Conn, limits Limits) (all [][][]byte, err error) {
	p, err := introduce(conn, zmq4.Pull, limits.withDefaults())
	for err == nil {
		var frames [][]byte
		if frames, err = p.receive(); err == nil {
			all = append(all, frames)
		}
	}
	return all, err
}

// FuzzGuard has a peer say anything after its introduction, or instead of one. What gets through is what the grammar says,
// however the bytes come, and nothing panics or waits.
func FuzzGuard(f *testing.F) {
	for _, said := range [][]byte{
		frame("hello"), {1, 1, 'a', 1, 0, 0, 1, 'b'}, command("PING", []byte{0, 1, 'c'}), long(0, 1<<49), long(4, 1<<62), long(0, 2),
		{4, 0}, {4, 1, 9}, {5, 1, 0}, {1, 0, 4, 0}, {8, 0}, {1, 0, 1, 0, 1, 0, 0, 0}, append(long(0, 65), make([]byte, 65)...),
		append(greeting(), ready("PUSH")...), append(greeting(), command("READY", []byte{11, 'S'})...),
	} {
		f.Add(said, 1, true)
		f.Add(said, 4096, false)
	}
	f.Fuzz(func(t *testing.T, said []byte, step int, introduced bool) {
		whole := said
		if introduced {
			whole = append(append(greeting(), ready("PUSH")...), said...)
		}
		conn := &stream{said: bytes.Clone(whole), step: min(max(step, 1), 5000)}
		got, err := readAll(conn, Limits{MaxFrame: fuzzFrame, MaxParts: fuzzParts})
		if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("ended with %v", err)
		}
		for _, frames := range got {
			if len(frames) > fuzzParts {
				t.Errorf("a message of %d frames", len(frames))
			}
			for _, content := range frames {
				if len(content) > fuzzFrame {
					t.Errorf("a frame of %d bytes", len(content))
				}
			}
		}
		if !introduced {
			return
		}
		want := messagesOf(said)
		if len(got) != len(want) {
			t.Fatalf("got %d messages (%v), want %d", len(got), err, len(want))
		}
		for i, frames := range got {
			if string(bytes.Join(frames, []byte("|"))) != string(bytes.Join(want[i], []byte("|"))) {
				t.Errorf("message %d: got %q, want %q", i, frames, want[i])
			}
		}
	})
}

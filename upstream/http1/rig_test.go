package http1

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// wired is a connection as package upstream makes them.
type wired struct{ *net.TCPConn }

func (c wired) Quiet() bool {
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	quiet := false
	err = raw.Control(func(fd uintptr) {
		_, _, err := syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		quiet = errors.Is(err, syscall.EAGAIN)
	})
	return err == nil && quiet
}

// peerPlay is what a server does with a connection, of which it is told the number.
type peerPlay func(p *player, number int)

// player is the server's end of a connection.
type player struct {
	net.Conn
	t    *testing.T
	from *bufio.Reader
}

// request reads a request whole, and reports whether there was one.
func (p *player) request() bool {
	r, err := http.ReadRequest(p.from)
	if err != nil {
		return false
	}
	_, err = io.Copy(io.Discard, r.Body)
	return err == nil
}

func (p *player) say(text string) { _, _ = io.WriteString(p.Conn, text) }

// gone returns when the client has closed the connection.
func (p *player) gone() { _, _ = io.Copy(io.Discard, p.from) }

// raw is a server of bytes.
type raw struct {
	authority string
	conns     atomic.Int32
}

// newRaw starts a server, each of whose connections ends with its play.
func newRaw(t *testing.T, play peerPlay) *raw {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	s := &raw{authority: listener.Addr().String()}
	var mu sync.Mutex
	var open []net.Conn
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open = append(open, conn)
			mu.Unlock()
			n := int(s.conns.Add(1))
			all.Go(func() {
				defer conn.Close()
				play(&player{conn, t, bufio.NewReader(conn)}, n)
			})
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		mu.Lock()
		for _, conn := range open {
			_ = conn.Close()
		}
		mu.Unlock()
		all.Wait()
	})
	return s
}

func dialTCP(ctx context.Context, _, address string) (Conn, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return wired{c.(*net.TCPConn)}, nil
}

// apart hides that a connection can write several pieces at once, as TLS does.
type apart struct{ Conn }

func dialApart(ctx context.Context, scheme, address string) (Conn, error) {
	c, err := dialTCP(ctx, scheme, address)
	return apart{c}, err
}

func newClient(t *testing.T) *Client { return clientOf(t, dialTCP) }

func clientOf(t *testing.T, dial func(ctx context.Context, scheme, address string) (Conn, error)) *Client {
	t.Helper()
	c := New(Config{Dial: dial, IdlePerHost: 4, IdleFor: time.Minute})
	t.Cleanup(c.Close)
	return c
}

func (s *raw) get() *Request {
	return &Request{Method: "GET", Scheme: "http", Authority: s.authority, Path: "/"}
}

func (s *raw) post(body []byte) *Request {
	return &Request{Method: "POST", Scheme: "http", Authority: s.authority, Path: "/", Body: [][]byte{body}}
}

// dials makes connections of both kinds.
func dials() map[string]func(ctx context.Context, scheme, address string) (Conn, error) {
	return map[string]func(ctx context.Context, scheme, address string) (Conn, error){"together": dialTCP, "apart": dialApart}
}

// fetch sends a request and reads its answer.
func fetch(t *testing.T, c *Client, q *Request) (r *Response, body string, err error) {
	t.Helper()
	if r, err = c.Do(t.Context(), q); err != nil {
		return nil, "", err
	}
	read, err := io.ReadAll(r)
	if closed := r.Close(); closed != nil {
		t.Error(closed)
	}
	return r, string(read), err
}

// script is a connection in memory that plays an answer in pieces, and ends with a clean end.
type script struct {
	pieces  [][]byte
	written []byte
	closed  atomic.Bool
}

func (s *script) Read(p []byte) (int, error) {
	for len(s.pieces) > 0 && len(s.pieces[0]) == 0 {
		s.pieces = s.pieces[1:]
	}
	if len(s.pieces) == 0 {
		return 0, io.EOF
	}
	n := copy(p, s.pieces[0])
	s.pieces[0] = s.pieces[0][n:]
	return n, nil
}

func (s *script) Write(p []byte) (int, error) {
	s.written = append(s.written, p...)
	return len(p), nil
}

func (s *script) Close() error                     { s.closed.Store(true); return nil }
func (s *script) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (s *script) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (s *script) SetDeadline(time.Time) error      { return nil }
func (s *script) SetReadDeadline(time.Time) error  { return nil }
func (s *script) SetWriteDeadline(time.Time) error { return nil }

// Quiet reports whether nothing of the answer is left.
func (s *script) Quiet() bool { return len(bytes.Join(s.pieces, nil)) == 0 && !s.closed.Load() }

// scripted is a client whose one connection plays an answer.
func scripted(s *script) *Client {
	return New(Config{Dial: func(context.Context, string, string) (Conn, error) { return s, nil }, IdlePerHost: 1, IdleFor: time.Hour})
}

// split cuts text into pieces of n bytes.
func split(text string, n int) (pieces [][]byte) {
	for len(text) > 0 {
		m := min(n, len(text))
		pieces, text = append(pieces, []byte(text[:m])), text[m:]
	}
	return pieces
}

// must ends the test at an error.
func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

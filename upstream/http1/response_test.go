package http1

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
)

func TestResponse_CloseEndsWhatIsLeft(t *testing.T) {
	closed := make(chan struct{}, 2)
	s := newRaw(t, func(p *player, _ int) {
		p.request()
		p.say(okHead + "{")
		p.gone()
		closed <- struct{}{}
	})
	c := newClient(t)
	for _, reading := range []bool{false, true} {
		r, err := c.Do(t.Context(), s.get())
		must(t, err)
		ended := make(chan error, 1)
		if reading {
			var b [1]byte
			_, err := r.Read(b[:])
			must(t, err)
			go func() {
				_, err := r.Read(b[:])
				ended <- err
			}()
		}
		for range 2 {
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		}
		<-closed
		if !reading {
			_, err := r.Read(make([]byte, 1))
			ended <- err
		}
		if err := <-ended; !errors.Is(err, net.ErrClosed) {
			t.Errorf("reading %v: got %v, want %v", reading, err, net.ErrClosed)
		}
	}
	if s.conns.Load() != 2 {
		t.Errorf("got %d connections, want 2", s.conns.Load())
	}
}

func TestResponse_ReadsWhatIsThere(t *testing.T) {
	step := make(chan string)
	s := newRaw(t, func(p *player, _ int) {
		p.request()
		for text := range step {
			p.say(text)
		}
	})
	go func() { step <- "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n" }()
	r, err := newClient(t).Do(t.Context(), s.get())
	must(t, err)
	p := make([]byte, 64)
	for _, tc := range []struct {
		say, want string
		room      int
	}{
		{"", "o", 1},
		{"", "ne", 64},
		{"3\r\ntwo\r\n", "two", 64},
		{"3\r\ntwo\r\n5", "two", 64},
		{"\r\nth", "th", 64},
		{"ree", "ree", 64},
		{"\r\n1\r\nx", "x", 64},
		{"\r\n0\r\nA: b\r\n\r\n", "", 64},
	} {
		if tc.say != "" {
			step <- tc.say
		}
		n, err := r.Read(p[:tc.room])
		if string(p[:n]) != tc.want || err != nil && (n > 0 || !errors.Is(err, io.EOF)) {
			t.Fatalf("%q: read %q, %v, want %q", tc.say, p[:n], err, tc.want)
		}
	}
	close(step)
	if n, err := r.Read(nil); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("read %d bytes into nothing, %v", n, err)
	}
}

func TestResponse_AReadCostsNoAllocation(t *testing.T) {
	s := newRaw(t, func(p *player, _ int) {
		p.request()
		p.say("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
		for chunk := []byte("3\r\none\r\n"); ; {
			if _, err := p.Write(chunk); err != nil {
				return
			}
		}
	})
	r, err := newClient(t).Do(t.Context(), s.get())
	must(t, err)
	defer func() { _ = r.Close() }()
	p := make([]byte, 64)
	if allocs := testing.AllocsPerRun(1000, func() {
		_, err := r.Read(p)
		must(t, err)
	}); allocs > 0 {
		t.Errorf("got %v allocations per read, want none", allocs)
	}
}

// What is detached is read to its end whatever becomes of its context, and its connection serves the next request.
func TestResponse_Detached(t *testing.T) {
	may := make(chan struct{})
	s := newRaw(t, func(p *player, _ int) {
		for p.request() {
			p.say(okHead + "{")
			<-may
			p.say("}")
		}
	})
	c := newClient(t)
	for range 2 {
		ctx, cancel := context.WithCancelCause(t.Context())
		r, err := c.Do(ctx, s.get())
		must(t, err)
		if err := r.Detach(); err != nil || r.Here() {
			t.Errorf("detached: %v, all here: %v", err, r.Here())
		}
		cancel(errLeft)
		go func() { may <- struct{}{} }()
		if body, err := io.ReadAll(r); err != nil || string(body) != "{}" || !r.Here() {
			t.Errorf("got %q, %v, all here: %v", body, err, r.Here())
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
	if s.conns.Load() != 1 {
		t.Errorf("got %d connections, want one", s.conns.Load())
	}
}

func TestResponse_IsNotDetachedFromAContextThatHasEnded(t *testing.T) {
	s := newRaw(t, func(p *player, _ int) { p.request(); p.say(okHead + "{"); p.gone() })
	c := newClient(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	r, err := c.Do(ctx, s.get())
	must(t, err)
	cancel(errLeft)
	if err := r.Detach(); !errors.Is(err, errLeft) {
		t.Errorf("got %v, want %v", err, errLeft)
	}
	if body, err := io.ReadAll(r); !errors.Is(err, errLeft) {
		t.Errorf("read %q, %v, want %v", body, err, errLeft)
	}
	_ = r.Close()
}

// An answer whose body has come with its header is all here, whatever becomes of its connection.
func TestResponse_Here(t *testing.T) {
	for answer, want := range map[string]bool{
		okHead + "{}": true, okHead + "{": false, okHead: false, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n": true,
		"HTTP/1.1 200 OK\r\n\r\n{}": false, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n": false,
	} {
		r, err := scripted(&script{pieces: split(answer, 4096)}).Do(t.Context(), (&raw{authority: "a"}).get())
		must(t, err)
		if got := r.Here(); got != want {
			t.Errorf("%q: got %v, want %v", answer, got, want)
		}
		if err := r.Detach(); err != nil {
			t.Errorf("%q: %v", answer, err)
		}
		_ = r.Close()
	}
}

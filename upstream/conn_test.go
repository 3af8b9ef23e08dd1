package upstream

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"
)

// connect returns both ends of a connection on loopback, the first as it is dialled.
func connect(tb testing.TB) (dialled, far *net.TCPConn) {
	tb.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	near, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		tb.Fatal(err)
	}
	other, err := listener.Accept()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = near.Close(); _ = other.Close() })
	return near.(*net.TCPConn), other.(*net.TCPConn)
}

func TestConn_TakesTheTimeBeforeItLooks(t *testing.T) {
	near, far := connect(t)
	c := watched(watch(near))
	began := time.Now()
	c.now = func() time.Time { // the process stands still here, and the answer comes
		if _, err := io.WriteString(far, "answer"); err != nil {
			t.Error(err)
		}
		pass(lying)
		return began.Add(slice)
	}
	var a arrival
	a.begin(began)
	c.serve(&a)
	p := make([]byte, 16)
	if n, err := c.Read(p); err != nil || string(p[:n]) != "answer" {
		t.Fatalf("read %q (%v)", p[:n], err)
	}
	if got := a.last(); !got.Equal(began) {
		t.Errorf("caught up %v after the leg began, though the connection was never seen to be empty", got.Sub(began))
	}
}

// What callers make of an error must not depend on whether the connection is watched.
func TestConn_FailsAsPackageNetDoes(t *testing.T) {
	for name, tc := range map[string]struct {
		spoil func(near net.Conn, far *net.TCPConn) error
		want  error
	}{
		"end":            {func(_ net.Conn, far *net.TCPConn) error { return far.Close() }, io.EOF},
		"closed":         {func(near net.Conn, _ *net.TCPConn) error { return near.Close() }, net.ErrClosed},
		"deadline":       {func(near net.Conn, _ *net.TCPConn) error { return near.SetDeadline(time.Now()) }, os.ErrDeadlineExceeded},
		"deadline ahead": {func(near net.Conn, _ *net.TCPConn) error { return near.SetReadDeadline(time.Now().Add(lying)) }, os.ErrDeadlineExceeded},
		"deadline undone": {func(near net.Conn, far *net.TCPConn) error {
			return errors.Join(near.SetDeadline(time.Now()), near.SetDeadline(time.Time{}), far.Close())
		}, io.EOF},
		"reset": {func(near net.Conn, far *net.TCPConn) error { return errors.Join(far.SetLinger(0), far.Close()) }, syscall.ECONNRESET},
	} {
		t.Run(name, func(t *testing.T) {
			var texts [2]string
			for i, wrap := range []func(net.Conn) net.Conn{func(c net.Conn) net.Conn { return c }, watch} {
				dialled, far := connect(t)
				near := wrap(dialled)
				if c := watched(near); c != nil {
					c.serve(&arrival{})
				}
				if err := tc.spoil(near, far); err != nil {
					t.Fatal(err)
				}
				n, err := near.Read(make([]byte, 8))
				if n != 0 || !errors.Is(err, tc.want) {
					t.Errorf("read %d bytes: %v, want %v", n, err, tc.want)
				}
				var op *net.OpError
				if errors.As(err, &op) {
					if op.Source != dialled.LocalAddr() || op.Addr != dialled.RemoteAddr() {
						t.Errorf("error of %v and %v, want the connection's", op.Source, op.Addr)
					}
					op.Source, op.Addr = nil, nil
				}
				texts[i] = err.Error()
			}
			if texts[0] != texts[1] {
				t.Errorf("got %q, want %q", texts[1], texts[0])
			}
		})
	}
}

func TestConn_ReadsNothingIntoNothing(t *testing.T) {
	near, _ := connect(t)
	if n, err := watch(near).Read(nil); n != 0 || err != nil {
		t.Errorf("read %d bytes: %v, want nothing", n, err)
	}
}

// A read waits for as long as nothing comes, in slices while there is a leg, which
// may come to a read that waits already, and go.
func TestConn_WaitsThroughItsSlices(t *testing.T) {
	t.Parallel()
	dialled, far := connect(t)
	c := watched(watch(dialled))
	began := time.Now()
	var a arrival
	a.begin(began)
	done := make(chan error, 1)
	go func() {
		_, err := c.Read(make([]byte, 8))
		done <- err
	}()
	pass(slice / 4)
	c.serve(&a)
	for deadline := began.Add(10 * slice); a.last().Equal(began); pass(slice / 20) {
		if time.Now().After(deadline) {
			t.Fatal("the connection was not looked at again")
		}
	}
	c.leave(&a)
	pass(lying) // for a look that had begun
	left := a.last()
	pass(slice + slice/2)
	if got := a.last(); !got.Equal(left) {
		t.Errorf("caught up %v after the connection was left", got.Sub(left))
	}
	if _, err := io.WriteString(far, "x"); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// A pipe in memory has no file descriptor.
func TestWatch_LeavesWhatItCannotRead(t *testing.T) {
	piped, other := net.Pipe()
	defer func() { _ = piped.Close(); _ = other.Close() }()
	if got := watch(piped); got != piped || watched(got) != nil {
		t.Errorf("got %T, want the connection as it is", got)
	}
}

// ping sends a chunk to and fro between a reader and its far end, so that every read
// has to wait.
func ping(tb testing.TB, near net.Conn, far *net.TCPConn) (once func()) {
	tb.Helper()
	p, q := make([]byte, 4<<10), make([]byte, 4<<10)
	chunk := make([]byte, 300)
	over := make(chan struct{})
	go func() {
		defer close(over)
		for {
			if _, err := far.Read(q); err != nil {
				return
			}
			if _, err := far.Write(chunk); err != nil {
				return
			}
		}
	}()
	tb.Cleanup(func() { _ = near.Close(); <-over })
	return func() {
		if _, err := near.Write(chunk[:1]); err != nil {
			tb.Fatal(err)
		}
		if _, err := near.Read(p); err != nil {
			tb.Fatal(err)
		}
	}
}

func serving(c net.Conn) net.Conn {
	w := watched(watch(c))
	a := &arrival{}
	a.begin(time.Now())
	w.serve(a)
	return w
}

func TestConn_AReadCostsNoAllocation(t *testing.T) {
	near, far := connect(t)
	once := ping(t, serving(near), far)
	if allocs := testing.AllocsPerRun(500, once); allocs > 0.1 { // a slice that ends costs an error
		t.Errorf("got %.2f allocations per read, want none", allocs)
	}
}

// A read that waits for its bytes, and one that finds them.
func BenchmarkConn_Read(b *testing.B) {
	for name, wrap := range map[string]func(net.Conn) net.Conn{
		"plain": func(c net.Conn) net.Conn { return c }, "idle": watch, "serving": serving,
	} {
		b.Run("waits/"+name, func(b *testing.B) {
			near, far := connect(b)
			once := ping(b, wrap(near), far)
			b.ReportAllocs()
			for b.Loop() {
				once()
			}
		})
		b.Run("finds/"+name, func(b *testing.B) {
			near, far := connect(b)
			c, p := wrap(near), make([]byte, 256)
			batch := make([]byte, 128<<10)
			b.ReportAllocs()
			left := 0
			for b.Loop() {
				if left == 0 {
					b.StopTimer()
					if _, err := far.Write(batch); err != nil {
						b.Fatal(err)
					}
					left = len(batch)
					b.StartTimer()
				}
				n, err := c.Read(p)
				if err != nil {
					b.Fatal(err)
				}
				left -= n
			}
		})
	}
}

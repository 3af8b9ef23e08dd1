package upstream

import (
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestConn_BoundsWhatIsNotAcknowledged(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer listener.Close()
	dialled, err := newConnections().dial(t.Context(), listener.Addr().String(), time.Minute)
	must(t, err)
	defer dialled.Close()
	got := 0
	var failed error
	if err := dialled.raw.Control(func(fd uintptr) {
		got, failed = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT)
	}); err != nil || failed != nil {
		t.Fatal(err, failed)
	}
	if want := 30_000; got != want {
		t.Errorf("TCP_USER_TIMEOUT is %d ms, want %d", got, want)
	}
}

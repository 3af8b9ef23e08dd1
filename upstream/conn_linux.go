package upstream

import (
	"errors"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// look reports whether a connection has something to read, and whether the peer has closed or reset it. POLLRDHUP shows
// an end behind unread bytes (poll(2)); a leg with a slow client may leave bytes there for minutes.
func look(fd int) (unread, ended bool) {
	asked := [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN | unix.POLLRDHUP}}
	_, err := unix.Poll(asked[:], 0)
	for errors.Is(err, unix.EINTR) {
		_, err = unix.Poll(asked[:], 0)
	}
	return asked[0].Revents&unix.POLLIN != 0, err != nil || asked[0].Revents&^unix.POLLIN != 0
}

// unackedFor is how long sent bytes may stay unacknowledged. Without it, Linux tries a vanished host for about 15
// minutes (net.ipv4.tcp_retries2) and probes idle connections only. The far kernel acknowledges, so a long computation is not
// cut off; an engine that does not read a request for that long is.
const unackedFor = 30 * time.Second

// boundUnacked is a net.Dialer's Control: it sets TCP_USER_TIMEOUT (RFC 5482) before the connection is dialled.
func boundUnacked(_, _ string, conn syscall.RawConn) error {
	var failed error
	if err := conn.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(unackedFor.Milliseconds()))
	}); err != nil {
		return err
	}
	return os.NewSyscallError("setsockopt", failed)
}

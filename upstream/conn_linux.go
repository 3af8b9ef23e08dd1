package upstream

import (
	"errors"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// look reports whether there is something to read on a connection, and whether the peer has closed or reset it.
// POLLRDHUP tells that although unread bytes came before (poll(2)); a leg whose client is slow may leave them there for
// minutes.
func look(fd int) (unread, ended bool) {
	asked := [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN | unix.POLLRDHUP}}
	_, err := unix.Poll(asked[:], 0)
	for errors.Is(err, unix.EINTR) {
		_, err = unix.Poll(asked[:], 0)
	}
	return asked[0].Revents&unix.POLLIN != 0, err != nil || asked[0].Revents&^unix.POLLIN != 0
}

// unackedFor is how long sent bytes may stay unacknowledged before a connection counts as broken. Without a limit,
// Linux tries a host that has vanished for about 15 minutes (net.ipv4.tcp_retries2), and keep-alive probes are sent on
// idle connections only. The far kernel acknowledges, so an engine that computes for long is not cut off; one that
// does not read a request for that long is.
const unackedFor = 30 * time.Second

// boundUnacked sets TCP_USER_TIMEOUT (RFC 5482) on a connection before it is dialled; it is a net.Dialer's Control.
func boundUnacked(_, _ string, conn syscall.RawConn) error {
	var failed error
	if err := conn.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(unackedFor.Milliseconds()))
	}); err != nil {
		return err
	}
	return os.NewSyscallError("setsockopt", failed)
}

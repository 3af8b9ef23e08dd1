package upstream

import (
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

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

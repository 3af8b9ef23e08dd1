package upstream

import (
	"errors"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// WriteNow implements http1.Ready. A leg of 256 KiB goes out in one system call, without a copy and without a
// goroutine, if the kernel has room for it.
func (c *conn) WriteNow(pieces [][]byte) (n int, err error) {
	var failed error
	err = c.raw.Write(func(fd uintptr) bool {
		n, failed = unix.Writev(int(fd), pieces[:min(len(pieces), mostPieces)])
		for errors.Is(failed, unix.EINTR) {
			n, failed = unix.Writev(int(fd), pieces[:min(len(pieces), mostPieces)])
		}
		return true
	})
	switch {
	case err != nil:
		return 0, err
	case errors.Is(failed, unix.EAGAIN):
		return 0, nil
	case failed != nil:
		return 0, &net.OpError{
			Op: "write", Net: c.LocalAddr().Network(), Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: os.NewSyscallError("writev", failed),
		}
	}
	return n, nil
}

// mostPieces is how many pieces Linux takes at once (IOV_MAX).
const mostPieces = 1024

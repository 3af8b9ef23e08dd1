//go:build !linux

package upstream

import (
	"errors"
	"syscall"
)

// look reports whether there is something to read on a connection, and whether the peer has closed or reset it. An end
// behind unread bytes is not found.
func look(fd int) (unread, ended bool) {
	var first [1]byte
	n, _, err := syscall.Recvfrom(fd, first[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	return n > 0, n == 0 && !errors.Is(err, syscall.EAGAIN)
}

// boundUnacked leaves connections as they are: TCP_USER_TIMEOUT is Linux's.
func boundUnacked(string, string, syscall.RawConn) error { return nil }

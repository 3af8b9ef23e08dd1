//go:build !linux

package upstream

import (
	"errors"
	"syscall"
)

// look does not see an end behind unread bytes.
func look(fd int) (unread, ended bool) {
	var first [1]byte
	n, _, err := syscall.Recvfrom(fd, first[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	return n > 0, n == 0 && !errors.Is(err, syscall.EAGAIN)
}

// boundUnacked does nothing: TCP_USER_TIMEOUT exists on Linux only.
func boundUnacked(string, string, syscall.RawConn) error { return nil }

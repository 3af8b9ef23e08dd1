//go:build !linux

package upstream

import (
	"errors"
	"syscall"
)

// peerEnded reports whether the peer has closed or reset a connection. An end behind unread bytes is not found.
func peerEnded(fd int) bool {
	var first [1]byte
	n, _, err := syscall.Recvfrom(fd, first[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	return n == 0 && !errors.Is(err, syscall.EAGAIN)
}

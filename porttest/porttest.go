// Package porttest reserves ports for tests. What a test has closed, so that connections are refused, must not be opened again by another
// test or by another process: the legs that a program still sends there would reach them.
package porttest

import (
	"syscall"
	"testing"
)

// Reserve returns a port of 127.0.0.1 that nobody but the caller gets until the test ends. It is bound by a socket that does not listen: Linux
// gives such a port to nobody who asks for any port, and to a listener that names it (SO_REUSEADDR, socket(7)).
func Reserve(tb testing.TB) (port int) {
	tb.Helper()
	syscall.ForkLock.RLock()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(fd)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		tb.Fatalf("reserve a port: %v", err)
	}
	tb.Cleanup(func() { _ = syscall.Close(fd) })
	if err = syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err == nil {
		err = syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
	}
	var bound syscall.Sockaddr
	if err == nil {
		bound, err = syscall.Getsockname(fd)
	}
	if err != nil {
		tb.Fatalf("reserve a port: %v", err)
	}
	return bound.(*syscall.SockaddrInet4).Port
}

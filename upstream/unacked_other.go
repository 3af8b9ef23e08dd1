//go:build !linux

package upstream

import "syscall"

// boundUnacked leaves connections as they are: TCP_USER_TIMEOUT is Linux's.
func boundUnacked(string, string, syscall.RawConn) error { return nil }

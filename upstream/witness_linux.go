package upstream

import (
	"errors"

	"golang.org/x/sys/unix"
)

// peerEnded reports whether the peer has closed or reset a connection. POLLRDHUP tells it although unread bytes came
// before (poll(2)); a leg whose client is slow may leave them there for minutes.
func peerEnded(fd int) bool {
	asked := [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
	_, err := unix.Poll(asked[:], 0)
	for errors.Is(err, unix.EINTR) {
		_, err = unix.Poll(asked[:], 0)
	}
	return err != nil || asked[0].Revents&(unix.POLLRDHUP|unix.POLLHUP|unix.POLLERR|unix.POLLNVAL) != 0
}

package moriio

import (
	"strconv"
	"strings"

	"carryover/upstream"
)

// address is the address of an engine, in text host:HOST,handshake:PORT,notify:PORT (moriio_common.py, parse_moriio_zmq_address). The
// ports are the ports of the engine's first rank.
type address struct {
	host              string
	handshake, notify int
}

// addressOf parses the address that an instance has announced.
func addressOf(i *upstream.Instance) (a address, ok bool) {
	parts := strings.Split(i.Announced.Address, ",")
	if len(parts) != 3 {
		return a, false
	}
	host, found := strings.CutPrefix(parts[0], "host:")
	handshake, first := port(parts[1], "handshake:")
	notify, second := port(parts[2], "notify:")
	return address{host, handshake, notify}, found && host != "" && first && second
}

func port(part, name string) (n int, ok bool) {
	digits, ok := strings.CutPrefix(part, name)
	n, err := strconv.Atoi(digits)
	return n, ok && err == nil && n >= 1 && n <= 65535
}

package discovery

import (
	"net"
	"strings"

	"carryover/upstream"
)

// IsPublisher reports whether text is an endpoint at which an instance may publish its KV events: tcp://host:port, with a host that
// others can connect to.
func IsPublisher(text string) bool {
	rest, tcp := strings.CutPrefix(text, "tcp://")
	host, port, err := net.SplitHostPort(rest)
	if err != nil || !tcp || !upstream.IsHost(host) {
		return false
	}
	_, ok := parsePort(port)
	return ok
}

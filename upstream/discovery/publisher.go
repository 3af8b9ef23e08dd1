package discovery

import (
	"net"
	"strings"

	"carryover/upstream"
)

// IsPublisher accepts where an instance may publish its KV events: tcp://host:port, of a host that others can connect to.
func IsPublisher(text string) bool {
	rest, tcp := strings.CutPrefix(text, "tcp://")
	host, port, err := net.SplitHostPort(rest)
	if err != nil || !tcp || !upstream.IsHost(host) {
		return false
	}
	_, ok := parsePort(port)
	return ok
}

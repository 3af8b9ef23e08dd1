package zmtp

import (
	"fmt"
	"net"
	"strconv"
	"strings"
)

// ParseEndpoint returns the host:port of tcp://host:port, for net.Listen or a [Subscriber]. The host * (listen on all addresses
// of this machine) becomes empty. Port 0 means any free port.
func ParseEndpoint(text string) (hostPort string, err error) {
	rest, tcp := strings.CutPrefix(text, "tcp://")
	if !tcp {
		return "", fmt.Errorf("endpoint %q: want tcp://host:port", text)
	}
	host, port, err := net.SplitHostPort(rest)
	if err != nil || host == "" || strings.ContainsAny(host, "/?#@ \t\r\n") {
		return "", fmt.Errorf("endpoint %q: want tcp://host:port", text)
	}
	if _, err := strconv.ParseUint(port, 10, 16); err != nil {
		return "", fmt.Errorf("endpoint %q: want a port up to 65535", text)
	}
	if host == "*" {
		host = ""
	}
	return net.JoinHostPort(host, port), nil
}

// dialable is ParseEndpoint for an endpoint to connect to.
func dialable(text string) (string, error) {
	hostPort, err := ParseEndpoint(text)
	if err != nil {
		return "", err
	}
	if strings.HasPrefix(hostPort, ":") || strings.HasSuffix(hostPort, ":0") {
		return "", fmt.Errorf("endpoint %q: want a host and a port to connect to", text)
	}
	return hostPort, nil
}

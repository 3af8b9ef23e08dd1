package main

import (
	"fmt"
	"net"
	"net/netip"
)

// validateAdmin demands a token if other machines can reach the listener, because the listener can move turns and add instances that
// then get every prompt.
func (l *loader) validateAdmin() {
	a := &l.cfg.Admin
	if l.given("admin.token") && (len(a.Token) < minSecretBytes || !isVisible(string(a.Token))) {
		l.fault("admin.token", redacted, fmt.Sprintf("at least %d printable ASCII characters without spaces", minSecretBytes))
	}
	if a.Listen == adminOff {
		return
	}
	host, port, err := net.SplitHostPort(a.Listen)
	if err != nil || host != "" && !isHost(host) || port != "0" && !isPort(port) {
		l.fault("admin.listen", a.Listen, "host:port, or "+adminOff)
		return
	}
	if a.Token == "" && !isLoopback(host) {
		l.fault("admin.listen", a.Listen, "admin.token_file beside an address that is not loopback")
	}
}

// isLoopback reports whether a host is reachable only from this machine.
func isLoopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.IsLoopback()
}

package config

import (
	"fmt"
	"net"
	"net/netip"

	"carryover/cmd/carryover/config/hostport"
	"carryover/upstream"
)

// validateAdmin demands a token if other machines can reach the listener, because the listener can move turns and add instances that
// then get every prompt.
func validateAdmin(v *validation, a *AdminConfig) {
	if v.given("admin.token") && (len(a.Token) < minSecretBytes || !hostport.IsVisible(string(a.Token))) {
		v.fault("admin.token", redacted, fmt.Sprintf("at least %d printable ASCII characters without spaces", minSecretBytes))
	}
	if a.Listen == AdminOff {
		return
	}
	host, port, err := net.SplitHostPort(a.Listen)
	if err != nil || host != "" && !upstream.IsHost(host) || port != "0" && !hostport.IsPort(port) {
		v.fault("admin.listen", a.Listen, "host:port, or "+AdminOff)
		return
	}
	if a.Token == "" && !IsLoopback(host) {
		v.fault("admin.listen", a.Listen, "admin.token_file beside an address that is not loopback")
	}
}

// IsLoopback reports whether a host is reachable only from this machine.
func IsLoopback(host string) bool {
	addr, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && addr.IsLoopback()
}

package upstream

import (
	"fmt"
	"net"
	"strings"
	"time"
)

// Role is the phase of inference that an instance serves.
type Role int

// The two roles of a disaggregated deployment.
const (
	RolePrefill Role = iota + 1
	RoleDecode
)

// MarshalText returns the name, for logs in JSON.
func (r Role) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// String returns "prefill" or "decode".
func (r Role) String() string {
	switch r {
	case RolePrefill:
		return "prefill"
	case RoleDecode:
		return "decode"
	}
	return fmt.Sprintf("role(%d)", int(r))
}

// Instance is one vLLM server as it is configured. What is known of the live engine (in flight, up or down) belongs to
// fleet.Engine, so that Instances can be compared and kept.
type Instance struct {
	// Name is unique within a role; it appears in logs and never reaches a
	// client.
	Name string
	// BaseURL is scheme and authority, without a trailing slash.
	BaseURL string
	// Role is the phase that the instance serves.
	Role Role
	// KVHost is the policy for remote_host in this instance's
	// kv_transfer_params: "auto", "pin" or a fixed host (package nixl).
	KVHost string
	// KVTTL is decoder_kv_blocks_ttl of a decode instance: how long it pins the blocks of a finished request (480 s in
	// vLLM unless configured). Zero for prefill instances.
	KVTTL time.Duration
	// Weight is the instance's share of the load, relative to others of its role; 0 counts as 1.
	Weight int
	// Rank is the data-parallel rank that this instance stands for, if Ranked. Its legs name the rank in
	// X-data-parallel-rank, and several instances share one BaseURL.
	Rank   int
	Ranked bool
	// KVPort is the port of a prefill instance's side server (Mooncake's bootstrap server); 0 is the connector's
	// default.
	KVPort int
	// KVEvents is the address at which the instance publishes its KV events, tcp://host:port, "" if it does not.
	KVEvents string
}

// NewInstance returns the instance at rawURL, which must satisfy ParseBaseURL. The name defaults to the authority.
func NewInstance(role Role, name, rawURL string) (Instance, error) {
	u, err := ParseBaseURL(rawURL)
	if err != nil {
		return Instance{}, fmt.Errorf("%s instance: %w", role, err)
	}
	if name == "" {
		name = u.Host // at most as long as host names
	} else if !IsName(name) {
		return Instance{}, fmt.Errorf("%s instance: name %q: want at most 128 printable ASCII characters without spaces", role, name)
	}
	return Instance{Name: name, BaseURL: u.String(), Role: role, KVHost: "auto"}, nil
}

// Host returns the host of the instance without port and without the brackets of an IPv6 literal, as vLLM spells
// remote_host.
func (i Instance) Host() string {
	host, _, _ := net.SplitHostPort(i.Authority())
	return host
}

// PeerHost returns the host at which other engines reach the instance, without brackets: KVHost if that is a host, else the
// one of BaseURL.
func (i Instance) PeerHost() string {
	switch i.KVHost {
	case "", "auto", "pin":
		return i.Host()
	}
	return strings.TrimSuffix(strings.TrimPrefix(i.KVHost, "["), "]")
}

// Authority returns host and port of the instance, with the scheme's port if BaseURL has none: http://a and
// http://a:80 are one address.
func (i Instance) Authority() string {
	scheme, authority, _ := strings.Cut(i.BaseURL, "://")
	if _, _, err := net.SplitHostPort(authority); err == nil {
		return authority
	}
	port := "80"
	if scheme == "https" {
		port = "443"
	}
	return net.JoinHostPort(strings.Trim(authority, "[]"), port)
}

package upstream

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"

	"carryover/upstream/http1"
)

// Role is the phase of inference that an instance serves.
type Role int

// The roles.
const (
	RolePrefill Role = iota + 1
	RoleDecode
)

// Roles returns all roles.
func Roles() []Role { return []Role{RolePrefill, RoleDecode} }

// MarshalText returns the name, for logs in JSON.
func (r Role) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

func (r Role) String() string {
	switch r {
	case RolePrefill:
		return "prefill"
	case RoleDecode:
		return "decode"
	}
	return fmt.Sprintf("role(%d)", int(r))
}

// Instance is one vLLM server as configured. Facts about the live engine belong to fleet.Engine, so Instances can be compared and kept.
type Instance struct {
	// Name is unique within a role; it appears in logs and never reaches a client.
	Name string
	// BaseURL is scheme and authority, without a trailing slash.
	BaseURL string
	Role    Role
	// KVHost is the policy for remote_host in this instance's kv_transfer_params: "auto", "pin" or a fixed host (package nixl).
	KVHost string
	// KVTTL is decoder_kv_blocks_ttl of a decode instance: how long it pins the blocks of a finished request (480 s in vLLM by default).
	// Zero for prefill.
	KVTTL time.Duration
	// Weight is the instance's share of the load within its role; 0 counts as 1.
	Weight int
	// Rank is the data-parallel rank of this instance, if Ranked. Legs name it in X-data-parallel-rank; several instances share one
	// BaseURL.
	Rank   int
	Ranked bool
	// KVPort is the port of a prefill instance's side server (Mooncake's bootstrap server); 0 is the connector's default.
	KVPort int
	// KVEvents is the address of the instance's KV events, tcp://host:port, "" for none.
	KVEvents string
}

// NewInstance returns the instance at rawURL, which must satisfy ParseBaseURL. The name defaults to the authority.
func NewInstance(role Role, name, rawURL string) (Instance, error) {
	u, err := ParseBaseURL(rawURL)
	if err != nil {
		return Instance{}, fmt.Errorf("%s instance: %w", role, err)
	}
	if name == "" {
		name = u.Host
	} else if !IsName(name) {
		return Instance{}, fmt.Errorf("%s instance: name %q: want at most 128 printable ASCII characters without spaces", role, name)
	}
	return Instance{Name: name, BaseURL: u.String(), Role: role, KVHost: "auto"}, nil
}

// Host returns the host without port and without the brackets of an IPv6 literal, as vLLM spells remote_host.
func (i Instance) Host() string {
	host, _, _ := net.SplitHostPort(i.Authority())
	return host
}

// PeerHost returns the host at which other engines reach the instance, without brackets: KVHost if that is a host, else the host of
// BaseURL.
func (i Instance) PeerHost() string {
	switch i.KVHost {
	case "", "auto", "pin":
		return i.Host()
	}
	return strings.TrimSuffix(strings.TrimPrefix(i.KVHost, "["), "]")
}

// Authority returns host and port, with the scheme's default port: http://a and http://a:80 are one address.
func (i Instance) Authority() string {
	scheme, authority, _ := strings.Cut(i.BaseURL, "://")
	return http1.Address(scheme, authority)
}

// ParseBaseURL parses the address of an instance: http or https, a host, an optional port, and nothing else. Legs append /v1/..., so a
// path would be lost or doubled. It returns host and scheme in lower case.
func ParseBaseURL(raw string) (*url.URL, error) {
	refused := fmt.Errorf("address %q: want http://host[:port] or https://host[:port], without path, query and user", raw)
	u, err := url.Parse(raw)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.User != nil {
		return nil, refused
	}
	if strings.TrimSuffix(u.Path, "/") != "" || strings.ContainsAny(raw, "?#") {
		return nil, refused
	}
	port := u.Port()
	if !IsHost(u.Hostname()) || (port != "" && !IsPort(port)) || strings.HasSuffix(u.Host, ":") {
		return nil, refused
	}
	return &url.URL{Scheme: u.Scheme, Host: strings.ToLower(u.Host)}, nil
}

// IsHost accepts IP addresses without zone, and host names; with underscores, because compose makes such names. A last label of digits
// only is a mistyped IPv4 address (WHATWG URL, "ends in a number").
func IsHost(text string) bool {
	if addr, err := netip.ParseAddr(text); err == nil {
		return addr.Zone() == ""
	}
	labels := strings.Split(strings.TrimSuffix(text, "."), ".")
	for _, label := range labels {
		if label == "" || len(label) > 63 || label[0] == '-' || strings.Trim(label, letters+digits+"-_") != "" {
			return false
		}
	}
	return len(text) <= 253 && strings.Trim(labels[len(labels)-1], digits) != ""
}

const (
	letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	digits  = "0123456789"
)

// IsName accepts 1 to 128 printable ASCII characters without spaces.
func IsName(text string) bool { return IsVisible(text) && len(text) <= 128 }

// IsVisible reports whether text is not empty and consists of printable ASCII without spaces.
func IsVisible(text string) bool {
	for _, b := range []byte(text) {
		if b <= ' ' || b > '~' {
			return false
		}
	}
	return text != ""
}

// IsPort reports whether text is a port from 1 to 65535.
func IsPort(text string) bool {
	n, err := strconv.ParseUint(text, 10, 16)
	return err == nil && n > 0
}

// Source tells which instances exist. Watch calls set with the complete list at each change, and returns when ctx ends.
type Source interface {
	Watch(ctx context.Context, set func([]Instance)) error
}

// Candidate is an instance as a policy sees it.
type Candidate struct {
	*Instance
	// InFlight is how many of our attempts use it now.
	InFlight int
	// Others is how many requests of others, running and waiting, the engine had at its last reading, plus how many of our legs it has
	// failed lately.
	Others int
	// Waiting is how many requests waited at that reading, ours included.
	Waiting int
	// KVUsage is the share of its KV cache in use at that reading, 0 to 1.
	KVUsage float64
	// Delay is how many nanoseconds a prefill instance needs for this turn's prompt and the tokens that it was sent and has not computed
	// yet. It is 0 for decode, and while its speed is not known.
	Delay float64
	// Holds is how many tokens of the conversation the current incarnation holds, 0 if none are known: decode by tickets, prefill in its
	// prefix cache after a hand-back.
	Holds int
	// Prefix is how many pieces of the prompt's beginning the current incarnation of a prefill instance has computed, or got by a
	// hand-back.
	Prefix int
	// Stopped says that no ticket can be used through this instance now: the pairs that it needs are stopped, and no trial is due.
	Stopped bool
}

// Policy picks one of at least one candidates and returns its index. key is equal for all turns of one conversation, and empty without
// one. A policy is safe for concurrent use, never blocks, and keeps no reference to the candidates.
type Policy interface {
	Pick(candidates []Candidate, key string) int
}

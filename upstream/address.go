package upstream

import (
	"fmt"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// ParseBaseURL parses the address of an instance: http or https, a host, an optional port, and nothing else. Legs
// append /v1/..., so a path would be lost or doubled. Host and scheme are returned in lower case.
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
	if !IsHost(u.Hostname()) || (port != "" && !isPort(port)) || strings.HasSuffix(u.Host, ":") {
		return nil, refused
	}
	return &url.URL{Scheme: u.Scheme, Host: strings.ToLower(u.Host)}, nil
}

// IsHost accepts IP addresses without zone and host names, underscores included because compose makes such names. A
// last label of digits only is a mistyped IPv4 address (WHATWG URL, "ends in a number").
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

// IsName accepts the names of instances: 1 to 128 printable ASCII characters without spaces.
func IsName(text string) bool {
	for _, b := range []byte(text) {
		if b <= ' ' || b > '~' {
			return false
		}
	}
	return text != "" && len(text) <= 128
}

func isPort(text string) bool {
	n, err := strconv.ParseUint(text, 10, 16)
	return err == nil && n > 0
}

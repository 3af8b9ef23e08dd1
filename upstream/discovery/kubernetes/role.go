package kubernetes

import (
	"net"
	"net/netip"
	"slices"
	"strconv"

	"carryover/upstream"
)

// roles tells roles by a label.
type roles struct {
	label           string
	prefill, decode []string // its values
}

// of returns the roles of a pod with these labels: none, one or both.
func (r roles) of(labels map[string]string) []upstream.Role {
	value, ok := labels[r.label]
	if !ok {
		return nil
	}
	var found []upstream.Role
	if slices.Contains(r.prefill, value) {
		found = append(found, upstream.RolePrefill)
	}
	if slices.Contains(r.decode, value) {
		found = append(found, upstream.RoleDecode)
	}
	return found
}

// at returns the instances of a pod at ip and port, one for each role. Their other fields are empty. ok is false if ip is not an IP
// address.
func at(found []upstream.Role, name, ip string, port int) (_ []upstream.Instance, ok bool) {
	address, err := netip.ParseAddr(ip)
	if err != nil || address.Zone() != "" {
		return nil, false
	}
	authority := net.JoinHostPort(address.String(), strconv.Itoa(port))
	instances := make([]upstream.Instance, 0, len(found))
	for _, role := range found {
		instances = append(instances, upstream.Instance{Name: name, BaseURL: "http://" + authority, Role: role})
	}
	return instances, true
}

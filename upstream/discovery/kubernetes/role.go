package kubernetes

import (
	"net"
	"net/netip"
	"slices"
	"strconv"

	"carryover/upstream"
)

// roleLabel is the label whose value tells the role, as vLLM's production stack has it.
const roleLabel = "model"

// roles are the values of roleLabel for each role.
type roles struct{ prefill, decode []string }

// of returns the roles of a pod with these labels: none, one or both.
func (r roles) of(labels map[string]string) []upstream.Role {
	value, ok := labels[roleLabel]
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

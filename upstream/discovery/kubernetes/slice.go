package kubernetes

import (
	"fmt"

	"carryover/upstream"
)

// slice are the fields of a discovery.k8s.io/v1 EndpointSlice that are needed.
type slice struct {
	Metadata  metadata   `json:"metadata"`
	Endpoints []endpoint `json:"endpoints"`
	Ports     []struct {
		Name string `json:"name"`
		Port int    `json:"port"`
	} `json:"ports"`
}

type endpoint struct {
	Addresses  []string `json:"addresses"`
	Conditions struct {
		Ready       *bool `json:"ready"`
		Terminating *bool `json:"terminating"`
	} `json:"conditions"`
	TargetRef struct {
		Kind string `json:"kind"`
		Name string `json:"name"`
	} `json:"targetRef"`
}

// sliceReader makes an instance of each endpoint that is ready. The role is the slice's: its controller gives it the labels of
// the service (pkg/controller/util/endpointslice of Kubernetes, setEndpointSliceLabels).
type sliceReader struct {
	port  string
	roles roles
}

func (sliceReader) group() (group, version string) { return "discovery.k8s.io", "v1" }
func (sliceReader) name() string                   { return EndpointSlices }

func (r sliceReader) read(data []byte) (object, error) {
	var s slice
	if err := parse(data, &s, &s.Metadata); err != nil {
		return object{}, err
	}
	found := object{name: s.Metadata.Name, version: s.Metadata.ResourceVersion}
	roles := r.roles.of(s.Metadata.Labels)
	if len(roles) == 0 || s.Metadata.DeletionTimestamp != nil || len(s.Endpoints) == 0 {
		return found, nil
	}
	port := s.port(r.port)
	if port == 0 {
		found.problem = fmt.Sprintf("it has no port named %q", r.port)
		return found, nil
	}
	for _, e := range s.Endpoints {
		if !e.serves() {
			continue
		}
		instances, ok := e.instances(roles, port)
		if !ok {
			found.problem = fmt.Sprintf("an address is %.80q", e.Addresses)
			continue
		}
		found.instances = append(found.instances, instances...)
	}
	return found, nil
}

// serves reports whether the endpoint takes requests. A missing condition counts as good. With publishNotReadyAddresses, all
// endpoints of a service are ready.
func (e endpoint) serves() bool {
	ready, terminating := e.Conditions.Ready, e.Conditions.Terminating
	return (ready == nil || *ready) && (terminating == nil || !*terminating)
}

// instances returns the instances of the endpoint. They are named after the endpoint's pod, or after their address. If there are
// several addresses, the first counts: the API gives no meaning to the others.
func (e endpoint) instances(found []upstream.Role, port int) (_ []upstream.Instance, ok bool) {
	if len(e.Addresses) == 0 {
		return nil, false
	}
	name := ""
	if e.TargetRef.Kind == "Pod" {
		name = e.TargetRef.Name
	}
	return at(found, name, e.Addresses[0], port)
}

// port returns the number of a port that is given by number or name; 0 if the slice has no port of that name.
func (s slice) port(given string) int {
	if number := portNumber(given); number > 0 {
		return number
	}
	for _, port := range s.Ports {
		if port.Name == given && port.Port > 0 && port.Port <= 65535 {
			return port.Port
		}
	}
	return 0
}

package kubernetes

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"

	"carryover/upstream"
)

// weightAnnotation gives a pod's share of the load, compared with others of its role (upstream.Instance).
const weightAnnotation = "carryover.dev/weight"

// maxWeight bounds weightAnnotation: one mistyped pod must not get everything.
const maxWeight = 1000

// pod are the fields of a core/v1 Pod that are needed.
type pod struct {
	Metadata struct {
		Name              string            `json:"name"`
		ResourceVersion   string            `json:"resourceVersion"`
		Labels            map[string]string `json:"labels"`
		Annotations       map[string]string `json:"annotations"`
		DeletionTimestamp *string           `json:"deletionTimestamp"`
	} `json:"metadata"`
	Spec struct {
		Containers     []container `json:"containers"`
		InitContainers []container `json:"initContainers"`
	} `json:"spec"`
	Status struct {
		Phase      string `json:"phase"`
		PodIP      string `json:"podIP"`
		Conditions []struct {
			Type   string `json:"type"`
			Status string `json:"status"`
		} `json:"conditions"`
	} `json:"status"`
}

type container struct {
	RestartPolicy string `json:"restartPolicy"`
	Ports         []struct {
		Name          string `json:"name"`
		ContainerPort int    `json:"containerPort"`
	} `json:"ports"`
}

// object is what a pod is to the roster.
type object struct {
	name      string
	version   string // opaque; version of the event in which the pod came
	instances []upstream.Instance
	problem   string // why it has no instances although its labels ask for some; empty if all is well
}

// reader makes an instance of each pod that is ready.
type reader struct {
	port  string
	roles roles
}

// read fails if data is no pod.
func (r reader) read(data []byte) (object, error) {
	var p pod
	if err := json.Unmarshal(data, &p); err != nil {
		return object{}, fmt.Errorf("read pod: %w", err)
	}
	if p.Metadata.Name == "" {
		return object{}, errNameless
	}
	found := object{name: p.Metadata.Name, version: p.Metadata.ResourceVersion}
	roles := r.roles.of(p.Metadata.Labels)
	if len(roles) == 0 || !p.serves() {
		return found, nil
	}
	port := p.port(r.port)
	if port == 0 {
		found.problem = fmt.Sprintf("no container has a port named %q", r.port)
		return found, nil
	}
	instances, ok := at(roles, p.Metadata.Name, p.Status.PodIP, port)
	if !ok {
		found.problem = fmt.Sprintf("its address is %q", p.Status.PodIP)
		return found, nil
	}
	weight, problem := p.weight()
	for i := range instances {
		instances[i].Weight = weight
	}
	found.instances, found.problem = instances, problem
	return found, nil
}

// serves reports whether the pod takes requests, as a service would decide. A pod that is being deleted stays ready until its
// containers have ended, so the deletion is checked too.
func (p pod) serves() bool {
	if p.Metadata.DeletionTimestamp != nil || p.Status.Phase != "Running" || p.Status.PodIP == "" {
		return false
	}
	for _, condition := range p.Status.Conditions {
		if condition.Type == "Ready" {
			return condition.Status == "True"
		}
	}
	return false
}

// port returns the number of a port that is given by number or name; 0 if no container has a port of that name. As for services,
// init containers that keep running (sidecars) count.
func (p pod) port(given string) int {
	if number := portNumber(given); number > 0 {
		return number
	}
	serving := p.Spec.Containers
	for _, c := range p.Spec.InitContainers {
		if c.RestartPolicy == "Always" {
			serving = append(serving, c)
		}
	}
	for _, c := range serving {
		for _, port := range c.Ports {
			if port.Name == given && port.ContainerPort > 0 && port.ContainerPort <= 65535 {
				return port.ContainerPort
			}
		}
	}
	return 0
}

// weight reads the annotation; without a usable one it is 0, which counts as 1.
func (p pod) weight() (weight int, problem string) {
	text, ok := p.Metadata.Annotations[weightAnnotation]
	if !ok {
		return 0, ""
	}
	weight, err := strconv.Atoi(text)
	if err != nil || weight < 1 || weight > maxWeight {
		return 0, fmt.Sprintf("annotation %s is %.40q: want 1 to %d, took 1", weightAnnotation, text, maxWeight)
	}
	return weight, ""
}

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

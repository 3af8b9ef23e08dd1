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

const weightAnnotation = "carryover.dev/weight"

// maxWeight: one mistyped pod must not get everything.
const maxWeight = 1000

type pod struct {
	Metadata struct {
		Name              string
		ResourceVersion   string
		Labels            map[string]string
		Annotations       map[string]string
		DeletionTimestamp *string
	}
	Spec struct {
		Containers     []container
		InitContainers []container
	}
	Status struct {
		Phase      string
		PodIP      string
		Conditions []struct {
			Type   string
			Status string
		}
	}
}

type container struct {
	RestartPolicy string
	Ports         []struct {
		Name          string
		ContainerPort int
	}
}

type object struct {
	name      string
	version   string // opaque; of the event that brought the pod
	instances []upstream.Instance
	problem   string // why it has no instances although its labels ask for some; else ""
}

type reader struct {
	port            string
	prefill, decode []string // the values of roleLabel
}

func (r reader) read(data []byte) (object, error) {
	var p pod
	if err := json.Unmarshal(data, &p); err != nil {
		return object{}, fmt.Errorf("read pod: %w", err)
	}
	if p.Metadata.Name == "" {
		return object{}, errNameless
	}
	found := object{name: p.Metadata.Name, version: p.Metadata.ResourceVersion}
	roles := r.roles(p.Metadata.Labels)
	if len(roles) == 0 || !p.serves() {
		return found, nil
	}
	port := p.port(r.port)
	if port == 0 {
		found.problem = fmt.Sprintf("no container has a port named %q", r.port)
		return found, nil
	}
	address, err := netip.ParseAddr(p.Status.PodIP)
	if err != nil || address.Zone() != "" {
		found.problem = fmt.Sprintf("its address is %q", p.Status.PodIP)
		return found, nil
	}
	var weight int
	weight, found.problem = p.weight()
	for _, role := range roles {
		found.instances = append(found.instances, upstream.Instance{
			Name: found.name, BaseURL: "http://" + net.JoinHostPort(address.String(), strconv.Itoa(port)), Role: role, Weight: weight,
		})
	}
	return found, nil
}

// roleLabel's value tells the role, as in vLLM's production stack.
const roleLabel = "model"

func (r reader) roles(labels map[string]string) (found []upstream.Role) {
	value, ok := labels[roleLabel]
	if ok && slices.Contains(r.prefill, value) {
		found = append(found, upstream.RolePrefill)
	}
	if ok && slices.Contains(r.decode, value) {
		found = append(found, upstream.RoleDecode)
	}
	return found
}

// serves decides as a service would. A pod that is being deleted stays ready until its containers have ended.
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

// port returns 0 if no container has a port of that name. As for services, init containers that keep running (sidecars)
// count.
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

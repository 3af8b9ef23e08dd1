package kubetest

import (
	"maps"
	"slices"
	"strconv"
)

// The resources that the server has.
const (
	Pods           = "pods"
	EndpointSlices = "endpointslices"
)

// Object is a Pod or an EndpointSlice.
type Object interface {
	resource() string
	name() string
	labels() map[string]string
	// fields are the object's as the API writes them, without metadata.
	fields() map[string]any
	meta() map[string]any // of metadata, beside name, labels and versions
}

// Pod is a core/v1 Pod. The zero value of what is not set is a pod that runs and is ready.
type Pod struct {
	Name        string
	Labels      map[string]string
	Annotations map[string]string
	IP          string
	Phase       string // empty: Running
	NotReady    bool
	Terminating bool
	Ports       map[string]int // of its container, by name
	Sidecar     map[string]int // ports of an init container that stays
}

func (Pod) resource() string            { return Pods }
func (p Pod) name() string              { return p.Name }
func (p Pod) labels() map[string]string { return p.Labels }

func (p Pod) meta() map[string]any {
	meta := map[string]any{"generateName": p.Name + "-"}
	if p.Annotations != nil {
		meta["annotations"] = p.Annotations
	}
	if p.Terminating {
		meta["deletionTimestamp"], meta["deletionGracePeriodSeconds"] = "2026-11-22T13:00:00Z", 30
	}
	return meta
}

func (p Pod) fields() map[string]any {
	ready, phase := "True", p.Phase
	if phase == "" {
		phase = "Running"
	}
	if p.NotReady || phase != "Running" {
		ready = "False"
	}
	conditions := []map[string]any{
		{"type": "PodScheduled", "status": "True", "lastProbeTime": nil, "lastTransitionTime": "2026-11-22T12:00:00Z"},
		{"type": "Ready", "status": ready, "lastProbeTime": nil, "lastTransitionTime": "2026-11-22T12:00:00Z"},
		{"type": "ContainersReady", "status": ready, "lastProbeTime": nil, "lastTransitionTime": "2026-11-22T12:00:00Z"},
	}
	status := map[string]any{"phase": phase, "conditions": conditions, "qosClass": "Burstable"}
	if p.IP != "" {
		status["podIP"], status["podIPs"] = p.IP, []map[string]any{{"ip": p.IP}}
	}
	spec := map[string]any{
		"containers":    []map[string]any{{"name": "vllm", "image": "vllm", "ports": containerPorts(p.Ports), "resources": map[string]any{}}},
		"restartPolicy": "Always", "nodeName": "node-1",
	}
	if p.Sidecar != nil {
		spec["initContainers"] = []map[string]any{{"name": "sidecar", "restartPolicy": "Always", "ports": containerPorts(p.Sidecar)}}
	}
	return map[string]any{"spec": spec, "status": status}
}

func containerPorts(byName map[string]int) []map[string]any {
	ports := []map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		ports = append(ports, map[string]any{"name": name, "containerPort": byName[name], "protocol": "TCP"})
	}
	return ports
}

// EndpointSlice is one of discovery.k8s.io/v1.
type EndpointSlice struct {
	Name        string
	Labels      map[string]string
	AddressType string         // empty: IPv4
	Ports       map[string]int // by name
	Endpoints   []Endpoint
}

// Endpoint is one of a slice.
type Endpoint struct {
	Address     string
	Pod         string // its targetRef, if not empty
	Ready       *bool
	Terminating *bool
}

func (EndpointSlice) resource() string            { return EndpointSlices }
func (s EndpointSlice) name() string              { return s.Name }
func (s EndpointSlice) labels() map[string]string { return s.Labels }
func (EndpointSlice) meta() map[string]any        { return map[string]any{"generation": 3} }

func (s EndpointSlice) fields() map[string]any {
	kind := s.AddressType
	if kind == "" {
		kind = "IPv4"
	}
	endpoints := []map[string]any{}
	for _, e := range s.Endpoints {
		conditions := map[string]any{}
		if e.Ready != nil {
			conditions["ready"], conditions["serving"] = *e.Ready, *e.Ready
		}
		if e.Terminating != nil {
			conditions["terminating"] = *e.Terminating
		}
		one := map[string]any{"addresses": []string{e.Address}, "conditions": conditions, "nodeName": "node-1"}
		if e.Pod != "" {
			one["targetRef"] = map[string]any{"kind": "Pod", "name": e.Pod, "namespace": Namespace, "uid": "u-" + e.Pod}
		}
		endpoints = append(endpoints, one)
	}
	ports := []map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(s.Ports)) {
		ports = append(ports, map[string]any{"name": name, "port": s.Ports[name], "protocol": "TCP"})
	}
	return map[string]any{"addressType": kind, "endpoints": endpoints, "ports": ports}
}

// render is the object as it is at a version.
func render(o Object, version int) map[string]any {
	kind, api := "Pod", "v1"
	if o.resource() == EndpointSlices {
		kind, api = "EndpointSlice", "discovery.k8s.io/v1"
	}
	meta := o.meta()
	meta["name"], meta["namespace"], meta["uid"] = o.name(), Namespace, "u-"+o.name()
	meta["resourceVersion"], meta["labels"] = strconv.Itoa(version), o.labels()
	meta["managedFields"] = []map[string]any{{"manager": "kubelet", "operation": "Update", "fieldsV1": map[string]any{"f:status": map[string]any{}}}}
	fields := o.fields()
	fields["kind"], fields["apiVersion"], fields["metadata"] = kind, api, meta
	return fields
}

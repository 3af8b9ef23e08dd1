package kubetest

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Pod is a core/v1 Pod. The zero value runs and is ready.
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

func (p Pod) render(version int) map[string]any {
	meta := p.meta()
	meta["name"], meta["namespace"], meta["uid"] = p.Name, Namespace, "u-"+p.Name
	meta["resourceVersion"], meta["labels"] = strconv.Itoa(version), p.Labels
	meta["managedFields"] = []map[string]any{{"manager": "kubelet", "operation": "Update", "fieldsV1": map[string]any{"f:status": map[string]any{}}}}
	fields := p.fields()
	fields["kind"], fields["apiVersion"], fields["metadata"] = "Pod", "v1", meta
	return fields
}

type selector []requirement

type requirement struct {
	key     string
	values  []string
	negated bool
	exists  bool // the key is enough
}

// parseSelector reads k=v, k==v, k!=v, k, !k, "k in (a,b)" and "k notin (a,b)", joined by commas.
func parseSelector(text string) (selector, error) {
	var all selector
	for text = strings.TrimSpace(text); text != ""; {
		var part string
		part, text = cutRequirement(text)
		r, err := parseRequirement(strings.TrimSpace(part))
		if err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return all, nil
}

func cutRequirement(text string) (part, rest string) {
	inside := false
	for i, c := range text {
		switch {
		case c == '(':
			inside = true
		case c == ')':
			inside = false
		case c == ',' && !inside:
			return text[:i], text[i+1:]
		}
	}
	return text, ""
}

func parseRequirement(text string) (requirement, error) {
	for _, operator := range []string{" notin ", " in "} {
		if key, list, ok := strings.Cut(text, operator); ok {
			list = strings.TrimSpace(list)
			if !strings.HasPrefix(list, "(") || !strings.HasSuffix(list, ")") {
				return requirement{}, fmt.Errorf("unable to parse requirement: %q", text)
			}
			values := strings.Split(strings.Trim(list, "()"), ",")
			for i := range values {
				values[i] = strings.TrimSpace(values[i])
			}
			return requirement{key: strings.TrimSpace(key), values: values, negated: operator == " notin "}, nil
		}
	}
	for _, operator := range []string{"!=", "==", "="} {
		if key, value, ok := strings.Cut(text, operator); ok {
			return requirement{key: strings.TrimSpace(key), values: []string{strings.TrimSpace(value)}, negated: operator == "!="}, nil
		}
	}
	key, negated := strings.CutPrefix(text, "!")
	if key == "" || strings.ContainsAny(key, " ()") {
		return requirement{}, fmt.Errorf("unable to parse requirement: %q", text)
	}
	return requirement{key: key, negated: negated, exists: true}, nil
}

func (s selector) matches(labels map[string]string) bool {
	for _, r := range s {
		value, ok := labels[r.key]
		if !r.exists {
			ok = ok && slices.Contains(r.values, value)
		}
		if ok == r.negated {
			return false
		}
	}
	return true
}

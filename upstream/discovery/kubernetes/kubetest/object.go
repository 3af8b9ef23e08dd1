package kubetest

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
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

// render returns the pod as the API server writes it.
func (p Pod) render(version int) json.RawMessage {
	ready, phase, address, meta := "True", p.Phase, "", ""
	if phase == "" {
		phase = "Running"
	}
	if p.NotReady || phase != "Running" {
		ready = "False"
	}
	if p.IP != "" {
		address = fmt.Sprintf(`"podIP":%[1]q,"podIPs":[{"ip":%[1]q}],`, p.IP)
	}
	if p.Annotations != nil {
		meta = fmt.Sprintf(`"annotations":%s,`, text(p.Annotations))
	}
	if p.Terminating {
		meta += `"deletionTimestamp":"2026-11-22T13:00:00Z","deletionGracePeriodSeconds":30,`
	}
	return json.RawMessage(fmt.Sprintf(`{`+kind+`"metadata":{"generateName":"%[1]s-",%[2]s"name":%[1]q,"namespace":"`+Namespace+`","uid":"u-%[1]s","resourceVersion":"%[3]d",`+
		`"labels":%[4]s,"managedFields":[{"manager":"kubelet","operation":"Update","fieldsV1":{"f:status":{}}}]},`+
		`"spec":{"containers":[{"name":"vllm","image":"vllm","ports":%[5]s,"resources":{}}],"initContainers":[{"name":"sidecar","restartPolicy":"Always","ports":%[6]s}],`+
		`"restartPolicy":"Always","nodeName":"node-1"},"status":{%[7]s"phase":%[8]q,"conditions":[{"type":"PodScheduled","status":"True","lastProbeTime":null},`+
		`{"type":"Ready","status":%[9]q,"lastProbeTime":null},{"type":"ContainersReady","status":%[9]q,"lastProbeTime":null}],"qosClass":"Burstable"}}`,
		p.Name, meta, version, text(p.Labels), containerPorts(p.Ports), containerPorts(p.Sidecar), address, phase, ready))
}

// kind is what items of a list don't have.
const kind = `"kind":"Pod","apiVersion":"v1",`

func text(labels map[string]string) []byte {
	raw, err := json.Marshal(labels)
	if err != nil {
		panic(err) // never
	}
	return raw
}

func containerPorts(byName map[string]int) string {
	var ports []string
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		ports = append(ports, fmt.Sprintf(`{"name":%q,"containerPort":%d,"protocol":"TCP"}`, name, byName[name]))
	}
	return "[" + strings.Join(ports, ",") + "]"
}

// selector is k=v, k and "k in (a,b)", joined by commas.
type selector string

func (s selector) matches(labels map[string]string) bool {
	for _, part := range regexp.MustCompile(`[^,(]+(\([^)]*\))?`).FindAllString(string(s), -1) {
		key, values, valued := strings.Cut(strings.Replace(part, " in ", "=", 1), "=")
		value, has := labels[key]
		if !has || valued && !slices.Contains(strings.Split(strings.Trim(values, "()"), ","), value) {
			return false
		}
	}
	return true
}

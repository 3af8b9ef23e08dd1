package kubernetes

import (
	"strings"
	"testing"

	"carryover/upstream"
	"carryover/upstream/discovery/kubernetes/kubetest"
)

func TestSource_PodsWithNamedPortsWeightsAndIPv6(t *testing.T) {
	inCluster(t, func(w *world) {
		w.cfg.Port = "http"
		w.cfg.LabelSelector = "app=vllm,model"
		two := func(labels map[string]string) map[string]string { labels["app"] = "vllm"; return labels }
		w.api.Put(
			kubetest.Pod{Name: "p-1", IP: "fd00::1", Labels: two(map[string]string{"model": "prefill"}), Ports: map[string]int{"http": 8100, "nixl": 5600}, Annotations: map[string]string{weightAnnotation: "3"}},
			kubetest.Pod{Name: "p-2", IP: "10.0.0.2", Labels: two(map[string]string{"model": "prefill"}), Sidecar: map[string]int{"http": 8200}},
			kubetest.Pod{Name: "p-3", IP: "10.0.0.3", Labels: two(map[string]string{"model": "prefill"}), Ports: map[string]int{"web": 8000}},
			kubetest.Pod{Name: "x", IP: "10.0.0.4", Labels: map[string]string{"model": "prefill"}, Ports: map[string]int{"http": 8000}},
		)
	}, func(w *world) {
		w.want("p:p-1 p:p-2")
		want := []upstream.Instance{
			{Name: "p-1", BaseURL: "http://[fd00::1]:8100", Role: upstream.RolePrefill, Weight: 3},
			{Name: "p-2", BaseURL: "http://10.0.0.2:8200", Role: upstream.RolePrefill},
		}
		for i, got := range w.last() {
			if got != want[i] {
				t.Errorf("got %+v, want %+v", got, want[i])
			}
		}
		w.wantLog(`pod=p-3 problem="no container has a port named \"http\""`)
		again := kubetest.Pod{Name: "p-3", IP: "10.0.0.3", Labels: map[string]string{"model": "prefill", "app": "vllm"}}
		w.api.Put(again)
		w.want("p:p-1 p:p-2")
		if got := strings.Count(w.log.String(), "pod=p-3"); got != 1 {
			t.Errorf("the log tells of p-3 %d times, want once", got)
		}
	})
}

func TestPodReader(t *testing.T) {
	read := reader{port: "8000", prefill: []string{"prefill", "both"}, decode: []string{"decode", "both"}}
	const ready = `"status":{"phase":"Running","podIP":"10.0.0.1","conditions":[{"type":"Ready","status":"True"}]}}`
	named := func(meta string) string { return `{"metadata":{"name":"p",` + meta + `},` }
	for name, row := range map[string]struct{ text, urls, problem string }{
		"ready":              {named(`"labels":{"model":"decode"}`) + ready, "http://10.0.0.1:8000", ""},
		"of both roles":      {named(`"labels":{"model":"both"}`) + ready, "http://10.0.0.1:8000 http://10.0.0.1:8000", ""},
		"no label":           {named(`"labels":null`) + ready, "", ""},
		"another value":      {named(`"labels":{"model":"canary"}`) + ready, "", ""},
		"being deleted":      {named(`"deletionTimestamp":"2026-11-22T13:00:00Z","labels":{"model":"decode"}`) + ready, "", ""},
		"deletion is null":   {named(`"deletionTimestamp":null,"labels":{"model":"decode"}`) + ready, "http://10.0.0.1:8000", ""},
		"no conditions":      {named(`"labels":{"model":"decode"}`) + `"status":{"phase":"Running","podIP":"10.0.0.1"}}`, "", ""},
		"ready is unknown":   {named(`"labels":{"model":"decode"}`) + `"status":{"phase":"Running","podIP":"10.0.0.1","conditions":[{"type":"Ready","status":"Unknown"}]}}`, "", ""},
		"not running":        {named(`"labels":{"model":"decode"}`) + `"status":{"phase":"Succeeded","podIP":"10.0.0.1","conditions":[{"type":"Ready","status":"True"}]}}`, "", ""},
		"no address":         {named(`"labels":{"model":"decode"}`) + `"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}`, "", ""},
		"an address of none": {named(`"labels":{"model":"decode"}`) + `"status":{"phase":"Running","podIP":"evil/x?","conditions":[{"type":"Ready","status":"True"}]}}`, "", `"evil/x?"`},
		"a zone":             {named(`"labels":{"model":"decode"}`) + `"status":{"phase":"Running","podIP":"fe80::1%eth0","conditions":[{"type":"Ready","status":"True"}]}}`, "", "fe80"},
		"a weight of zero":   {named(`"labels":{"model":"decode"},"annotations":{"carryover.dev/weight":"0"}`) + ready, "http://10.0.0.1:8000", "want 1 to 1000"},
		"a weight of text":   {named(`"labels":{"model":"decode"},"annotations":{"carryover.dev/weight":"much"}`) + ready, "http://10.0.0.1:8000", "want 1 to 1000"},
		"unknown fields":     {named(`"x":{"y":[1]},"labels":{"model":"decode"}`) + `"spec":{"x":1,"containers":[{"y":null}]},` + ready, "http://10.0.0.1:8000", ""},
	} {
		o, err := read.read([]byte(row.text))
		if err != nil || urls(o) != row.urls || !strings.Contains(o.problem, row.problem) || row.problem == "" && o.problem != "" {
			t.Errorf("%s: got %q, problem %q, error %v, want %q, %q", name, urls(o), o.problem, err, row.urls, row.problem)
		}
	}
	for _, text := range []string{"", "{", "null", "[]", `"p"`, `{"metadata":{}}`, `{"metadata":{"name":7}}`} {
		if _, err := read.read([]byte(text)); err == nil {
			t.Errorf("%q is read as a pod", text)
		}
	}
}

func urls(o object) string {
	var all []string
	for _, i := range o.instances {
		all = append(all, i.BaseURL)
	}
	return strings.Join(all, " ")
}

package kubernetes

import (
	"strings"
	"testing"

	"carryover/upstream"
	"carryover/upstream/discovery/kubernetes/kubetest"
)

// endpoints is a slice of a service whose label is role, with port 8000 by the name http.
func endpoints(name, role string, all ...kubetest.Endpoint) kubetest.EndpointSlice {
	return kubetest.EndpointSlice{
		Name: name, Labels: map[string]string{"model": role, "kubernetes.io/service-name": role},
		Ports: map[string]int{"http": 8100, "metrics": 9000}, Endpoints: all,
	}
}

func TestSource_FollowsEndpointSlices(t *testing.T) {
	yes, no := true, false
	inCluster(t, func(api *kubetest.Server, cfg *Config) {
		cfg.Resource, cfg.Port = EndpointSlices, "http"
		api.Put(endpoints("prefill-a", "prefill",
			kubetest.Endpoint{Address: "10.0.0.1", Pod: "p-1", Ready: &yes, Terminating: &no},
			kubetest.Endpoint{Address: "10.0.0.2", Pod: "p-2", Ready: &no},
			kubetest.Endpoint{Address: "10.0.0.3", Pod: "p-3", Ready: &yes, Terminating: &yes},
			kubetest.Endpoint{Address: "10.0.0.4", Pod: "p-4"},
		), endpoints("decode-a", "decode", kubetest.Endpoint{Address: "10.0.0.9", Ready: &yes}))
	}, func(w *world) {
		w.want("p:p-1 p:p-4 d:10.0.0.9:8100")
		if got := w.last()[0].BaseURL; got != "http://10.0.0.1:8100" {
			t.Errorf("p-1 is at %s, want the port named http", got)
		}
		// p-4 moves to another slice, and is in both for a moment.
		w.api.Put(endpoints("prefill-b", "prefill", kubetest.Endpoint{Address: "10.0.0.4", Pod: "p-4", Ready: &yes}))
		w.want("p:p-1 p:p-4 d:10.0.0.9:8100")
		w.api.Put(endpoints("prefill-a", "prefill", kubetest.Endpoint{Address: "10.0.0.1", Pod: "p-1", Ready: &yes}))
		w.want("p:p-1 p:p-4 d:10.0.0.9:8100")
		w.api.Delete(kubetest.EndpointSlices, "prefill-b")
		w.want("p:p-1 d:10.0.0.9:8100")
		w.wantAsked("list watch@1002")
	})
}

func TestSliceReader(t *testing.T) {
	read := sliceReader{port: "http", roles: roles{label: "model", prefill: []string{"prefill"}, decode: []string{"decode"}}}
	const head = `{"metadata":{"name":"s","labels":{"model":"decode"}},`
	const ports = `"ports":[{"name":"http","port":8000}],`
	for name, row := range map[string]struct{ text, urls, problem string }{
		"ready is not told":          {head + ports + `"endpoints":[{"addresses":["10.0.0.1"]}]}`, "http://10.0.0.1:8000", ""},
		"conditions are null":        {head + ports + `"endpoints":[{"addresses":["10.0.0.1"],"conditions":{"ready":null}}]}`, "http://10.0.0.1:8000", ""},
		"IPv6":                       {head + ports + `"endpoints":[{"addresses":["fd00::1"]}]}`, "http://[fd00::1]:8000", ""},
		"the first address counts":   {head + ports + `"endpoints":[{"addresses":["10.0.0.1","10.0.0.2"]}]}`, "http://10.0.0.1:8000", ""},
		"a host name":                {head + ports + `"endpoints":[{"addresses":["a.example"]},{"addresses":["10.0.0.1"]}]}`, "http://10.0.0.1:8000", `an address is ["a.example"]`},
		"no address":                 {head + ports + `"endpoints":[{"addresses":[]}]}`, "", "an address is []"},
		"no such port":               {head + `"endpoints":[{"addresses":["10.0.0.1"]}]}`, "", `no port named "http"`},
		"a port out of range":        {head + `"ports":[{"name":"http","port":65536}],"endpoints":[{"addresses":["10.0.0.1"]}]}`, "", `no port named "http"`},
		"ports that are null":        {head + `"ports":null,"endpoints":null}`, "", ""},
		"another role":               {`{"metadata":{"name":"s","labels":{"model":"other"}},"endpoints":[{"addresses":["10.0.0.1"]}]}`, "", ""},
		"being deleted":              {`{"metadata":{"name":"s","deletionTimestamp":"2026-11-22T13:00:00Z","labels":{"model":"decode"}},` + ports + `"endpoints":[{"addresses":["10.0.0.1"]}]}`, "", ""},
		"a target that is not a pod": {head + ports + `"endpoints":[{"addresses":["10.0.0.1"],"targetRef":{"kind":"Node","name":"n"}}]}`, "http://10.0.0.1:8000", ""},
	} {
		o, err := read.read([]byte(row.text))
		if err != nil || urls(o) != row.urls || !strings.Contains(o.problem, row.problem) || row.problem == "" && o.problem != "" {
			t.Errorf("%s: got %q, problem %q, error %v, want %q, %q", name, urls(o), o.problem, err, row.urls, row.problem)
		}
		for _, i := range o.instances {
			if i.Name != strings.TrimPrefix(i.BaseURL, "http://") || i.Role != upstream.RoleDecode {
				t.Errorf("%s: got %+v, want a decode instance named by its address", name, i)
			}
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

package check

import (
	"context"
	"maps"
	"net"
	"slices"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"carryover/upstream"
	"carryover/upstream/discovery/kubernetes"
	"carryover/upstream/discovery/kubernetes/kubetest"
)

// discovered is the part of Carryover's configuration that is about the cluster.
type discovered struct {
	Discovery struct {
		Selector string   `json:"k8s_label_selector"`
		Port     string   `json:"k8s_port"`
		Prefill  []string `json:"prefill_model_labels"`
		Decode   []string `json:"decode_model_labels"`
	} `json:"discovery"`
}

// config is the file that the replicas mount.
func (c *cluster) config(t *testing.T) string {
	t.Helper()
	for _, v := range c.deployments["carryover"].Spec.Template.Spec.Volumes {
		if v.Name == "config" {
			return c.configs[v.ConfigMap.Name].Data["carryover.yaml"]
		}
	}
	t.Fatal("Carryover has no volume config")
	return ""
}

// TestSourceFindsTheEngines runs the source with the configuration of the manifests, against an API server that has the engines'
// pods as their Deployments would make them, and that grants what the Role does. The source must ask for all of that, and find
// every engine at the port that vLLM listens on.
func TestSourceFindsTheEngines(t *testing.T) {
	c := open(t, fleet)
	var cfg discovered
	must(t, yaml.Unmarshal([]byte(c.config(t)), &cfg))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	api := kubetest.Start(t, listener)
	granted := map[string]bool{}
	for _, role := range c.roles {
		for _, rule := range role.Rules {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					granted[verb+" "+resource] = true
				}
			}
		}
	}
	for _, verb := range []string{"list", "watch"} {
		if !granted[verb+" pods"] {
			api.Forbid(verb)
		}
	}
	for name, d := range c.deployments {
		pod := kubetest.Pod{Name: name + "-1", IP: "10.0.0.1", Labels: d.Spec.Template.Labels, Ports: map[string]int{}}
		for _, container := range d.Spec.Template.Spec.Containers {
			for _, port := range container.Ports {
				pod.Ports[port.Name] = int(port.ContainerPort)
			}
		}
		api.Put(pod)
	}
	host, port, _ := net.SplitHostPort(listener.Addr().String())
	source, err := kubernetes.New(kubernetes.Config{
		APIHost: host, APIPort: port,
		TokenFile: api.Path("token"), CAFile: api.Path("ca.crt"), NamespaceFile: api.Path("namespace"),
		LabelSelector: cfg.Discovery.Selector, Port: cfg.Discovery.Port,
		PrefillLabels: cfg.Discovery.Prefill, DecodeLabels: cfg.Discovery.Decode,
	})
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	lists := make(chan []upstream.Instance, 2)
	done := make(chan error, 1)
	go func() { done <- source.Watch(ctx, func(all []upstream.Instance) { lists <- all }) }()
	next := func() []upstream.Instance {
		select {
		case all := <-lists:
			return all
		case <-ctx.Done():
			t.Fatal("the source finds nothing")
			return nil
		}
	}
	want := []upstream.Instance{
		{Name: "prefill-1", BaseURL: "http://10.0.0.1:8000", Role: upstream.RolePrefill},
		{Name: "decode-1", BaseURL: "http://10.0.0.1:8000", Role: upstream.RoleDecode},
	}
	if got := next(); !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	api.Delete("prefill-1")
	next() // by a watch
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	used := map[string]bool{}
	for _, r := range api.Requests() {
		used[r.Verb+" pods"] = true
	}
	if !maps.Equal(used, granted) {
		t.Errorf("the Role grants %v, the source uses %v", slices.Sorted(maps.Keys(granted)), slices.Sorted(maps.Keys(used)))
	}
}

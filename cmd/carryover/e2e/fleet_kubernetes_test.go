package e2e

import (
	"net"
	"testing"

	"carryover/cmd/carryover/app"
	"carryover/cmd/carryover/config"
	"carryover/upstream/discovery/kubernetes"
	"carryover/upstream/discovery/kubernetes/kubetest"
	"carryover/upstream/vllmsim"
)

// pod is the pod of an instance of a role.
func pod(role, name string, instance *vllmsim.Instance) kubetest.Pod {
	host, _, _ := net.SplitHostPort(authority(instance)) // it is one
	return kubetest.Pod{Name: name, IP: host, Labels: map[string]string{"app": "vllm", "model": role}}
}

// inCluster has the program run as in a pod. What the kubelet mounts is at paths that no setting names, so that the source is
// made anew, of the program's own configuration, with the paths of the test's files.
func inCluster(t *testing.T, api *kubetest.Server, listener net.Listener) func(config.Config, *app.Proxy) {
	t.Helper()
	host, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBERNETES_SERVICE_HOST", host)
	t.Setenv("KUBERNETES_SERVICE_PORT", port)
	return func(cfg config.Config, p *app.Proxy) {
		in := app.NewKubernetes(cfg.Discovery, nil)
		in.TokenFile, in.CAFile, in.NamespaceFile = api.Path("token"), api.Path("ca.crt"), api.Path("namespace")
		source, err := kubernetes.New(in)
		if err != nil {
			t.Fatal(err)
		}
		p.Sources.All = source
	}
}

func TestFleet_PodsComeAndGoUnderStreams(t *testing.T) {
	instances, port := startAlike(t, 4)
	prefill, decode := instances[:1], instances[1:]
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	api := kubetest.Start(t, listener)
	other := pod(config.RoleDecode, "other", decode[2]) // of another deployment
	other.Labels["app"] = "something-else"
	api.Put(pod(config.RolePrefill, "p-0", prefill[0]), pod(config.RoleDecode, "d-0", decode[0]), other)
	g := startChanging(t, rigConfig{
		flags: []string{"--k8s-label-selector", "app=vllm", "--k8s-port", port}, wire: inCluster(t, api, listener),
	})
	g.prefill, g.decode = prefill, decode
	g.awaitNamed(t, "d-0")

	a, b := g.thread("a"), g.thread("b")
	a.on(t, "first_turn", "d-0")
	a.on(t, hit, "d-0")
	under := a.begin(t, decode[0])
	api.Put(pod(config.RoleDecode, "d-1", decode[1]))
	g.awaitNamed(t, "d-0", "d-1")
	b.on(t, "first_turn", "d-1") // the other one is busy
	b.on(t, hit, "d-1")

	leaving := pod(config.RoleDecode, "d-0", decode[0])
	leaving.Terminating = true
	api.Put(leaving)
	g.awaitNamed(t, "d-1")
	if !g.drains(decode[0]) {
		t.Error("the pod that terminates with a stream is not draining")
	}
	api.Delete("d-0")
	api.RotateToken()
	b.on(t, hit, "d-1")
	if record := under.end(t, hit); record.Stored != "yes" {
		t.Errorf("stored %q, want yes", record.Stored)
	}
	g.awaitDrained(t)
	a.on(t, "instance_gone", "d-1")
	a.on(t, hit, "d-1")
	api.Put(pod(config.RoleDecode, "d-2", decode[2]))
	g.awaitNamed(t, "d-1", "d-2")
	b.on(t, hit, "d-1")
	g.verify(t, pins{})
}

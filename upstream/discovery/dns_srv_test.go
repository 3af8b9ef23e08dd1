package discovery_test

import (
	"context"
	"net"
	"testing"

	"carryover/upstream"
	"carryover/upstream/discovery"
)

const vllmTCP = "_vllm._tcp.vllm.test."

func TestDNS_AnInstanceForEachService(t *testing.T) {
	server := newDNSServer(t)
	server.set(vllmTCP, typeSRV, services(
		service(10, 30, 8001, "D-1.vllm.test."), service(10, 10, 8000, "d-0.vllm.test."), service(10, 0, 8002, "d-2.vllm.test."),
		service(10, 5, 8001, "d-1.vllm.test."), service(20, 10, 8000, "standby.vllm.test."), service(10, 10, 0, "no-port.vllm.test."), service(10, 10, 8000, "."),
	))
	for scheme, base := range map[string]string{"srv": "http", "srvs": "https"} {
		w := watch(t, parsed(t, server, &journal{}, scheme+"://"+vllmTCP))
		all := <-w.lists
		want := []upstream.Instance{
			{Name: "d-0.vllm.test:8000", BaseURL: base + "://d-0.vllm.test:8000", Weight: 10, Role: upstream.RoleDecode},
			{Name: "d-1.vllm.test:8001", BaseURL: base + "://d-1.vllm.test:8001", Weight: 30, Role: upstream.RoleDecode},
			{Name: "d-2.vllm.test:8002", BaseURL: base + "://d-2.vllm.test:8002", Weight: 1, Role: upstream.RoleDecode},
		}
		if len(all) != len(want) || all[0] != want[0] || all[1] != want[1] || all[2] != want[2] {
			t.Errorf("%s: set(%+v), want %+v", scheme, all, want)
		}
		server.rounds(typeSRV, 5)
		w.quiet(t) // though the resolver shuffles by weight
	}
}

func TestDNS_ServicesComeAndGo(t *testing.T) {
	server := newDNSServer(t)
	server.set(vllmTCP, typeSRV, services(service(0, 100, 8000, "d-0.test."), service(1, 100, 8000, "standby.test.")))
	w := watch(t, parsed(t, server, &journal{}, "srv://"+vllmTCP))
	first := <-w.lists
	if names(first) != "d-0.test:8000" {
		t.Fatalf("set(%s)", names(first))
	}
	// CoreDNS gives each of n pods a weight of 100/n: those that stay must stay as they are.
	server.set(vllmTCP, typeSRV, services(service(0, 50, 8000, "d-0.test."), service(0, 50, 8000, "d-1.test.")))
	second := <-w.lists
	if names(second) != "d-0.test:8000 d-1.test:8000" || second[0] != first[0] {
		t.Fatalf("set(%+v), want %+v as it was", second, first[0])
	}
	server.set(vllmTCP, typeSRV, services(service(1, 100, 8000, "standby.test.")))
	w.want(t, "standby.test:8000")
	server.set(vllmTCP, typeSRV, servfail)
	server.rounds(typeSRV, 40)
	w.quiet(t)
	server.remove(vllmTCP)
	w.want(t, "")
}

func TestParseDNS_Refuses(t *testing.T) {
	for _, raw := range []string{
		"", "vllm:8000", "http://vllm", "http://vllm:0", "http://vllm:http", "http://vllm:65536", "http://10.0.0.1:8000", "http://[::1]:8000", "http://:8000",
		"http://127.1:8000", "http://u@vllm:8000", "http://vllm:8000/v1", "http://vllm:8000?a", "http://vllm:8000#a", "ftp://vllm:8000", "srv://vllm:8000",
		"srv://_vllm._tcp.test:", "srv://", "srv:_vllm._tcp.test", "srvs://a/b", "http://*.test:8000", "http://a b:8000", "http://vllm..test:8000", "http://ü:8000",
	} {
		if d, err := discovery.ParseDNS(upstream.RoleDecode, raw); err == nil {
			t.Errorf("ParseDNS(%q) = %+v, want it refused", raw, d)
		}
	}
}

// A watch that ends while it looks up ends at once, and says nothing.
func TestDNS_EndsInTheMiddleOfALookUp(t *testing.T) {
	server, log := newDNSServer(t), &journal{}
	d := parsed(t, server, log, "http://vllm.test.:8000")
	ctx, cancel := context.WithCancel(t.Context())
	d.Resolver.Dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
		cancel()
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if err := d.Watch(ctx, func(all []upstream.Instance) { t.Errorf("set(%+v)", all) }); err != nil {
		t.Errorf("Watch = %v", err)
	}
	if got := log.lines(""); len(got) != 0 {
		t.Errorf("logged %q", got)
	}
}

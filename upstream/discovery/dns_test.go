package discovery

import (
	"carryover/logtest"
	"context"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"carryover/upstream"
)

const (
	typeA    = dnsmessage.TypeA
	typeAAAA = dnsmessage.TypeAAAA
	typeSRV  = dnsmessage.TypeSRV
)

// parsed is a source that looks up at the server as fast as it can.
func parsed(t *testing.T, server *dnsServer, log *logtest.Log, raw string) *DNS {
	t.Helper()
	d, err := ParseDNS(upstream.RoleDecode, raw)
	must(t, err)
	d.Resolver, d.Logger = server.resolver(), log.Logger()
	d.interval = time.Millisecond
	return d
}

func TestDNS_AnInstanceForEachAddress(t *testing.T) {
	server := newDNSServer()
	server.set("vllm.test.", typeA, addresses("10.0.0.2", "10.0.0.1", "0.0.0.0", "10.0.0.2"))
	server.set("vllm.test.", typeAAAA, addresses("fd00::1", "ff02::1"))
	w := watch(t, parsed(t, server, &logtest.Log{}, "http://VLLM.test.:8000"))
	all := <-w.lists
	if got := names(all); got != "10.0.0.1:8000 10.0.0.2:8000 [fd00::1]:8000" {
		t.Fatalf("set(%s)", got)
	}
	if want := (upstream.Instance{Name: "[fd00::1]:8000", BaseURL: "http://[fd00::1]:8000", Role: upstream.RoleDecode}); all[2] != want {
		t.Errorf("got %+v, want %+v", all[2], want)
	}
}

func TestDNS_FollowsTheRecords(t *testing.T) {
	server := newDNSServer()
	server.set("vllm.test.", typeA, addresses("10.0.0.1"))
	w := watch(t, parsed(t, server, &logtest.Log{}, "http://vllm.test.:8000"))
	w.want(t, "10.0.0.1:8000")
	server.set("vllm.test.", typeA, addresses("10.0.0.2", "10.0.0.1"))
	w.want(t, "10.0.0.1:8000 10.0.0.2:8000")
	server.set("vllm.test.", typeA, addresses("10.0.0.1", "10.0.0.2")) // a resolver that rotates
	server.rounds(typeA, 5)
	w.quiet(t)
	server.set("vllm.test.", typeA, addresses("10.0.0.2"))
	w.want(t, "10.0.0.2:8000")
}

// Names flap: the list stays until the third answer without records.
func TestDNS_AnAnswerWithoutRecordsCountsTheThirdTime(t *testing.T) {
	for name, empty := range map[string]func(*dnsServer){
		"NXDOMAIN":   func(s *dnsServer) { s.remove("vllm.test.") },
		"no records": func(s *dnsServer) { s.set("vllm.test.", typeA, reply{}) },
	} {
		t.Run(name, func(t *testing.T) {
			server, log := newDNSServer(), &logtest.Log{}
			server.turnstile = make(chan struct{})
			server.set("vllm.test.", typeA, addresses("10.0.0.1"))
			w := watch(t, parsed(t, server, log, "http://vllm.test.:8000"))
			t.Cleanup(func() { close(server.turnstile) }) // before the watch ends
			server.await(typeA)
			server.pass(1)
			w.want(t, "10.0.0.1:8000")
			// The A question of the look-up that is held is answered already, so that it does not see the next change.
			empty(server)
			server.pass(2) // with records, without
			server.set("vllm.test.", typeA, addresses("10.0.0.1"))
			server.pass(1) // without, the second in a row
			w.quiet(t)
			empty(server)
			server.pass(3) // with, without, without
			w.quiet(t)
			server.pass(1)
			w.want(t, "")
			if got := log.Lines("no instance behind a name"); len(got) != 1 {
				t.Errorf("logged %q", got)
			}
		})
	}
}

func TestDNS_AServerThatFailsChangesNothing(t *testing.T) {
	server, log := newDNSServer(), &logtest.Log{}
	server.set("vllm.test.", typeA, addresses("10.0.0.1"))
	server.set("vllm.test.", typeAAAA, addresses("fd00::1"))
	w := watch(t, parsed(t, server, log, "http://vllm.test.:8000"))
	w.want(t, "10.0.0.1:8000 [fd00::1]:8000")
	for _, code := range []dnsmessage.RCode{dnsmessage.RCodeServerFailure, dnsmessage.RCodeRefused} {
		server.set("vllm.test.", typeA, reply{code: code})
		server.rounds(typeA, 40) // each look-up is several questions then
		w.quiet(t)
	}
	server.set("vllm.test.", typeAAAA, addresses("fd00::2"))
	w.want(t, "10.0.0.1:8000 [fd00::2]:8000") // one family fails, the other goes on
	server.set("vllm.test.", typeA, addresses("10.0.0.3"))
	w.want(t, "10.0.0.3:8000 [fd00::2]:8000")
	if got := log.Lines("look-up failed"); len(got) != 1 || !strings.Contains(got[0], "type=A ") || !strings.Contains(got[0], "instances=1") {
		t.Errorf("logged %q, want one line", got)
	}
	if got := log.Lines("answered again"); len(got) != 1 {
		t.Errorf("logged %q, want one line", got)
	}
}

func TestDNS_ATimeOutChangesNothing(t *testing.T) {
	server := newDNSServer()
	server.set("vllm.test.", typeA, addresses("10.0.0.1"))
	d := parsed(t, server, &logtest.Log{}, "http://vllm.test.:8000")
	dial, late, dials := d.Resolver.Dial, make(chan struct{}), make(chan struct{}, 1<<16)
	d.Resolver.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		select {
		case <-late:
			dials <- struct{}{}
			return nil, &net.OpError{Op: "dial", Net: network, Err: os.ErrDeadlineExceeded}
		default:
			return dial(ctx, network, address)
		}
	}
	w := watch(t, d)
	w.want(t, "10.0.0.1:8000")
	close(late)
	for range 40 {
		<-dials
	}
	w.quiet(t)
}

func TestDNS_TheFirstLookUpFails(t *testing.T) {
	server, log := newDNSServer(), &logtest.Log{}
	server.set("vllm.test.", typeA, servfail)
	w := watch(t, parsed(t, server, log, "http://vllm.test.:8000"))
	w.want(t, "")
	if len(log.Lines("look-up failed")) != 1 || len(log.Lines("no instance behind a name")) != 1 {
		t.Errorf("logged %q", log.Lines(""))
	}
	server.set("vllm.test.", typeA, addresses("10.0.0.1"))
	w.want(t, "10.0.0.1:8000")
}

func TestDNS_BehindHTTPSTheNameStays(t *testing.T) {
	server, log := newDNSServer(), &logtest.Log{}
	server.set("vllm.test.", typeA, addresses("10.0.0.1"))
	server.set("vllm.test.", typeAAAA, addresses("fd00::1"))
	w := watch(t, parsed(t, server, log, "https://vllm.test.:8443"))
	all := <-w.lists
	if want := (upstream.Instance{Name: "vllm.test.:8443", BaseURL: "https://vllm.test.:8443", Role: upstream.RoleDecode}); len(all) != 1 || all[0] != want {
		t.Fatalf("set(%+v), want %+v", all, want)
	}
	if got := log.Lines("several addresses"); len(got) != 0 {
		t.Errorf("logged %q for one address of each family", got)
	}
	server.set("vllm.test.", typeA, addresses("10.0.0.1", "10.0.0.2"))
	server.rounds(typeA, 5)
	w.quiet(t)
	if got := log.Lines("several addresses"); len(got) != 1 {
		t.Errorf("logged %q, want one line", got)
	}
	server.remove("vllm.test.")
	w.want(t, "")
}

const vllmTCP = "_vllm._tcp.vllm.test."

func TestDNS_AnInstanceForEachService(t *testing.T) {
	server := newDNSServer()
	server.set(vllmTCP, typeSRV, services(
		service(10, 30, 8001, "D-1.vllm.test."), service(10, 10, 8000, "d-0.vllm.test."), service(10, 0, 8002, "d-2.vllm.test."),
		service(10, 5, 8001, "d-1.vllm.test."), service(20, 10, 8000, "standby.vllm.test."), service(10, 10, 0, "no-port.vllm.test."), service(10, 10, 8000, "."),
	))
	for scheme, base := range map[string]string{"srv": "http", "srvs": "https"} {
		w := watch(t, parsed(t, server, &logtest.Log{}, scheme+"://"+vllmTCP))
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
	server := newDNSServer()
	server.set(vllmTCP, typeSRV, services(service(0, 100, 8000, "d-0.test."), service(1, 100, 8000, "standby.test.")))
	w := watch(t, parsed(t, server, &logtest.Log{}, "srv://"+vllmTCP))
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
		if d, err := ParseDNS(upstream.RoleDecode, raw); err == nil {
			t.Errorf("ParseDNS(%q) = %+v, want it refused", raw, d)
		}
	}
}

// A watch that ends while it looks up ends at once, and says nothing.
func TestDNS_EndsInTheMiddleOfALookUp(t *testing.T) {
	server, log := newDNSServer(), &logtest.Log{}
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
	if got := log.Lines(""); len(got) != 0 {
		t.Errorf("logged %q", got)
	}
}

package discovery

import (
	"context"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"carryover/logtest"
	"carryover/upstream"
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

// A step changes records of a type (A, AAAA or SRV), or what the server says instead of them ("A: 2" for SERVFAIL), or removes the name; "rounds 5"
// waits until the server has answered so many questions for A or SRV records. A service is its priority, weight, port and target.
func TestDNS(t *testing.T) {
	for name, row := range map[string][2]string{ // URL and script
		"an instance for each address": {"http://VLLM.test.:8000", "A 10.0.0.2 10.0.0.1 0.0.0.0 10.0.0.2; AAAA fd00::1 ff02::1; watch; want 10.0.0.1:8000 10.0.0.2:8000 [fd00::1]:8000"},
		"it follows the records": {"http://vllm.test.:8000", "A 10.0.0.1; watch; want 10.0.0.1:8000; A 10.0.0.2 10.0.0.1; want 10.0.0.1:8000 10.0.0.2:8000;" +
			"A 10.0.0.1 10.0.0.2; rounds 5; quiet; A 10.0.0.2; want 10.0.0.2:8000"}, // a resolver may rotate
		"no such name":   {"http://vllm.test.:8000", "A 10.0.0.1; watch; want 10.0.0.1:8000; remove; want ; logged 1 no instance behind a name"},
		"no such record": {"http://vllm.test.:8000", "A 10.0.0.1; watch; want 10.0.0.1:8000; A; want ; logged 1 no instance behind a name"},
		"a server that fails changes nothing": {"http://vllm.test.:8000", "A 10.0.0.1; AAAA fd00::1; watch; want 10.0.0.1:8000 [fd00::1]:8000; A: 2; rounds 40; quiet; A: 5; rounds 40; quiet;" +
			"AAAA fd00::2; want 10.0.0.1:8000 [fd00::2]:8000;" + // one family fails, the other goes on
			"A 10.0.0.3; want 10.0.0.3:8000 [fd00::2]:8000; logged 1 look-up failed; logged 1 type=A instances=1; logged 1 answered again"},
		"the first look-up fails": {"http://vllm.test.:8000", "A: 2; watch; want ; logged 1 look-up failed; logged 1 no instance behind a name; A 10.0.0.1; want 10.0.0.1:8000"},
		"behind https the name stays": {"https://vllm.test.:8443", "A 10.0.0.1; AAAA fd00::1; watch; want vllm.test.:8443=https://vllm.test.:8443; logged 0 several addresses;" +
			"A 10.0.0.1 10.0.0.2; rounds 5; quiet; logged 1 several addresses; remove; want "},
		"an instance for each service":           {"srv://" + vllmTCP, someServices + "watch; want d-0.vllm.test:8000*10 d-1.vllm.test:8001*30 d-2.vllm.test:8002*1; rounds 5; quiet"}, // though the resolver shuffles
		"an instance for each service, by https": {"srvs://" + vllmTCP, someServices + "watch; want d-0.vllm.test:8000=https://d-0.vllm.test:8000*10 d-1.vllm.test:8001=https://d-1.vllm.test:8001*30 d-2.vllm.test:8002=https://d-2.vllm.test:8002*1"},
		// CoreDNS gives each of n pods a weight of 100/n: those that stay must stay as they are.
		"services come and go": {"srv://" + vllmTCP, "SRV 0/100/8000/d-0.test. 1/100/8000/standby.test.; watch; want d-0.test:8000*1; SRV 0/50/8000/d-0.test. 0/50/8000/d-1.test.; want d-0.test:8000*1 d-1.test:8000*1;" +
			"SRV 1/100/8000/standby.test.; want standby.test:8000*1; SRV: 2; rounds 40; quiet; remove; want "},
	} {
		t.Run(name, func(t *testing.T) {
			server, log := newDNSServer(), &logtest.Log{}
			host, kind := "vllm.test.", dnsmessage.TypeA
			if strings.HasPrefix(row[0], "srv") {
				host, kind = vllmTCP, dnsmessage.TypeSRV
			}
			fails := func(kind dnsmessage.Type) func(string) {
				return func(about string) {
					code, _ := strconv.Atoi(about)
					server.set(host, kind, reply{code: dnsmessage.RCode(code)})
				}
			}
			play(t, row[1], parsed(t, server, log, row[0]), log, map[string]func(string){
				"A":    func(about string) { server.set(host, dnsmessage.TypeA, addresses(strings.Fields(about)...)) },
				"AAAA": func(about string) { server.set(host, dnsmessage.TypeAAAA, addresses(strings.Fields(about)...)) },
				"SRV":  func(about string) { server.set(host, kind, services(strings.Fields(about)...)) },
				"A:":   fails(dnsmessage.TypeA), "SRV:": fails(dnsmessage.TypeSRV),
				"remove": func(string) { server.remove(host) },
				"rounds": func(about string) {
					n, _ := strconv.Atoi(about)
					server.rounds(kind, n)
				},
			})
		})
	}
}

const (
	vllmTCP      = "_vllm._tcp.vllm.test."
	someServices = "SRV 10/30/8001/D-1.vllm.test. 10/10/8000/d-0.vllm.test. 10/0/8002/d-2.vllm.test. 10/5/8001/d-1.vllm.test. 20/10/8000/standby.vllm.test. 10/10/0/no-port.vllm.test. 10/10/8000/.;"
)

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
	if log.String() != "" {
		t.Errorf("logged %s", log)
	}
}

package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"carryover/cmd/carryover/config"
	"carryover/upstream"
	"carryover/upstream/fleet"
	"carryover/upstream/vllmsim"
	"carryover/upstream/zmq/zmtp/zmqtest"
)

// refusedRegistrations is how many announcements the program says that it has refused.
func (r *registered) refusedRegistrations(t *testing.T, reason string) float64 {
	t.Helper()
	return r.scrape(t).sum("carryover_registrations_refused_total", `reason="`+reason+`"`)
}

// scrape reads the metrics.
func (r *registered) scrape(t *testing.T) scraped {
	t.Helper()
	answer := httptest.NewRecorder()
	r.proxy.Telemetry.Meters.Scraped.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	return readScrape(t, answer.Body.String())
}

// kvAt is the KV address of an engine whose ports are the same.
func kvAt(host string, port int) string {
	return fmt.Sprintf("host:%s,handshake:%d,notify:%d", host, port, port)
}

// announcing starts a peer that announces an engine until its process ends: kind, HTTP address and KV address.
func (r *registered) announcing(t *testing.T, kind, http, kv string) *zmqtest.Process {
	t.Helper()
	python := zmqtest.Start(t, pinger, r.address)
	python.Say(kind + " " + http + " " + kv)
	python.Want("pings")
	return python
}

// A peer that reaches the port and announces other engines' addresses changes nothing of them: neither their role, nor where KV is read from
// or sent to.
func TestRegistered_AnotherPeerTakesNothingOfAnEngine(t *testing.T) {
	t.Parallel()
	for name, announced := range map[string]func(prefill, decode *vllmsim.Instance) (kind, http, kv string){
		"role":               func(p, _ *vllmsim.Instance) (string, string, string) { return "D", authority(p), p.Addresses().KV },
		"KV address":         func(_, d *vllmsim.Instance) (string, string, string) { return "D", authority(d), kvAt("127.0.0.9", 9) },
		"another's KV":       func(p, _ *vllmsim.Instance) (string, string, string) { return "P", "127.0.0.9:9", p.Addresses().KV },
		"another's KV, role": func(_, d *vllmsim.Instance) (string, string, string) { return "P", "127.0.0.9:9", d.Addresses().KV },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := startRegistered(t, registeredConfig{as: speaking{connector: config.ConnectorMoRIIO}})
			r.over(t, saying("one"), "one")
			engines := func() []*fleet.Engine {
				return slices.Concat(r.proxy.Fleet.Engines(upstream.RolePrefill), r.proxy.Fleet.Engines(upstream.RoleDecode))
			}
			before := engines()
			kind, http, kv := announced(r.prefill[0], r.decode[0])
			hostile := r.announcing(t, kind, http, kv)
			if !within(foundWithin, func() bool { return r.refusedRegistrations(t, "taken") >= 3 }) {
				t.Error("announcements of another peer are not refused")
			}
			r.await(t, r.prefill, r.decode)
			if after := engines(); !slices.Equal(before, after) {
				t.Errorf("the fleet has %v, want the engines of before, %v", after, before)
			}
			r.over(t, saying("two"), "two")
			if n := r.turns.count("WARN an engine may not register"); n != 1 {
				t.Errorf("%d lines about the refused peer, want one a minute", n)
			}
			hostile.Kill()
			r.settled(t, pins{}, 0)
		})
	}
}

// An address is free for another peer when its engine has not announced it for as long as an instance may be silent.
func TestRegistered_AnAddressIsFreeAfterItsEngine(t *testing.T) {
	t.Parallel()
	r := startRegistered(t, registeredConfig{as: speaking{connector: config.ConnectorMoRIIO}, prefills: 2})
	heir := r.announcing(t, "D", authority(r.prefill[0]), kvAt("127.0.0.9", 9))
	if !within(foundWithin, func() bool { return r.refusedRegistrations(t, "taken") > 0 }) {
		t.Error("the announcement of another peer is not refused while the engine announces itself")
	}
	if err := r.prefill[0].SetFault(vllmsim.Fault{Kind: vllmsim.FaultRefuse}); err != nil {
		t.Fatal(err)
	}
	r.await(t, r.prefill[1:], []*vllmsim.Instance{r.decode[0], r.prefill[0]})
	heir.Kill()
	r.await(t, r.prefill[1:], r.decode)
	r.over(t, saying("one"), "one")
	r.settled(t, pins{}, 0)
}

// With an allow-list engines elsewhere are none, and neither are those whose KV would be elsewhere.
func TestRegistered_OnlyWhoIsPermitted(t *testing.T) {
	t.Parallel()
	r := startRegistered(t, registeredConfig{
		as: speaking{connector: config.ConnectorMoRIIO}, flags: []string{"--zmq-discovery-allow", "127.0.0.1:1024-65535"},
	})
	for n, peer := range [][2]string{{"127.0.0.9:9000", kvAt("127.0.0.1", 9001)}, {"127.0.0.1:80", kvAt("127.0.0.1", 9001)}, {"127.0.0.1:9000", kvAt("127.0.0.9", 9001)}} {
		before := r.refusedRegistrations(t, "not_allowed")
		python := r.announcing(t, "P", peer[0], peer[1])
		if !within(foundWithin, func() bool { return r.refusedRegistrations(t, "not_allowed") > before }) {
			t.Errorf("peer %d, %v, is not refused", n, peer)
		}
		r.await(t, r.prefill, r.decode)
		python.Kill()
	}
	r.over(t, saying("one"), "one")
	r.settled(t, pins{}, 0)
}

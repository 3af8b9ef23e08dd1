package e2e

import (
	"net/http"
	"slices"
	"testing"

	"carryover/cmd/carryover/config"
	"carryover/cmd/carryover/testrig"
	"carryover/server/record"
	"carryover/upstream"
	"carryover/upstream/vllmsim"
)

// prefillerHeader is how llm-d's endpoint picker names the prefill instance of a request.
const prefillerHeader = "X-Prefiller-Host-Port"

// startPrefillers starts n prefill instances and returns their addresses.
func startPrefillers(t *testing.T, n int) (instances []*vllmsim.Instance, addresses []string) {
	t.Helper()
	for range n {
		instance := testrig.StartInstance(t, vllmsim.DefaultConfig(), "")
		instances, addresses = append(instances, instance), append(addresses, authority(instance))
	}
	return instances, addresses
}

// named holds a turn whose header names a prefill instance.
func (h *thread) named(t *testing.T, prefill, reuse string) *record.Turn {
	t.Helper()
	h.header.Set(prefillerHeader, prefill)
	rec := h.turn(t, reuse)
	h.header.Del(prefillerHeader)
	return rec
}

func TestFleet_InPlaceOfTheSidecarRequestsNameTheirPrefillInstance(t *testing.T) {
	t.Parallel()
	prefill, at := startPrefillers(t, 3)
	g := startChanging(t, rigConfig{
		decode: []vllmsim.Config{vllmsim.DefaultConfig()},
		flags:  []string{"--prefiller-allow", at[0], "--prefiller-allow", "127.0.0.0/8:" + portOf(t, prefill[1])},
	})
	g.prefill = prefill
	a := g.thread("a")
	for _, step := range []struct {
		prefill         int
		reuse, instance string
	}{{0, "first_turn", at[0]}, {1, hit, at[1]}, {0, hit, at[0]}, {1, hit, at[1]}} {
		rec := a.named(t, at[step.prefill], step.reuse)
		if got := rec.Leg(upstream.RolePrefill).Instance; got != step.instance || pathOf(rec) != record.WayPrefillDecode {
			t.Errorf("%s: prefill leg on %q by way of %s, want %s", rec.Turn, got, pathOf(rec), step.instance)
		}
	}

	prefilled := g.sum(t, config.RolePrefill)["requests"]
	rec := a.turn(t, "bypass") // the picker clears the header where decode is to serve alone
	if got, want := pathOf(rec), "decode_only;reason=no_prefiller"; got != want {
		t.Errorf("path %q without a header, want %q", got, want)
	}
	for _, other := range []string{at[2], "127.0.0.1:1", "127.0.0.2:1", "localhost:" + portOf(t, prefill[0]), authority(g.decode[0]), "http://" + at[0], at[2] + "," + at[0]} {
		a.header.Set(prefillerHeader, other)
		a.refused(t, http.StatusForbidden, "prefiller_not_allowed")
	}
	a.header.Del(prefillerHeader)
	if got := g.sum(t, config.RolePrefill)["requests"]; got != prefilled {
		t.Errorf("prefill instances got %d requests of turns that name none or one that is not permitted", got-prefilled)
	}
	if got := prefill[2].Stats().RequestsTotal; got != 0 {
		t.Errorf("the instance that is not permitted got %d requests, want none", got)
	}
	a.named(t, at[1]+", "+at[2], hit) // the ticket has waited; of several the first counts
	if got := prefill[2].Stats().RequestsTotal; got != 0 {
		t.Errorf("an instance named second got %d requests, want none", got)
	}
	for _, instance := range g.all("") {
		for _, request := range instance.Requests() {
			if request.Header.Get(prefillerHeader) != "" {
				t.Errorf("%s %s has the header that names the prefill instance", request.Method, request.Path)
			}
		}
	}
	g.verify(t, pins{})
}

func TestFleet_WithoutTheSettingTheSidecarsHeaderIsNothing(t *testing.T) {
	t.Parallel()
	prefill, at := startPrefillers(t, 2)
	g := startChanging(t, rigConfig{
		decode: []vllmsim.Config{vllmsim.DefaultConfig()}, flags: []string{"--prefill", prefill[0].URL()},
	})
	g.prefill = prefill
	a := g.thread("a")
	for _, reuse := range []string{"first_turn", hit} {
		rec := a.named(t, at[1], reuse)
		if got := rec.Leg(upstream.RolePrefill).Instance; got != at[0] {
			t.Errorf("prefill leg on %q, want %s", got, at[0])
		}
	}
	if got := prefill[1].Stats().RequestsTotal; got != 0 {
		t.Errorf("the named instance got %d requests, want none", got)
	}
	if slices.ContainsFunc(prefill[0].Requests(), func(r vllmsim.RecordedRequest) bool { return r.Header.Get(prefillerHeader) != "" }) {
		t.Error("the header was forwarded")
	}
	g.verify(t, pins{})
}

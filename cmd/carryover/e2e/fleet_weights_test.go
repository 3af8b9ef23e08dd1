package e2e

import (
	"strconv"
	"testing"

	"carryover/cmd/carryover/config"
	"carryover/cmd/carryover/testrig"
	"carryover/upstream/vllmsim"
)

// startWeighted starts two instances of each role, the first of which is to get three times as much as the second.
func startWeighted(t *testing.T, policy string) *changing {
	t.Helper()
	var prefill, decode []*vllmsim.Instance
	text := ""
	for role, into := range map[string]*[]*vllmsim.Instance{config.RolePrefill: &prefill, config.RoleDecode: &decode} {
		text += role + ":\n"
		for _, weight := range []string{"3", "1"} {
			instance := testrig.StartInstance(t, vllmsim.DefaultConfig(), "")
			*into = append(*into, instance)
			text += "  - {url: " + instance.URL() + ", weight: " + weight + "}\n"
		}
	}
	flags := append(configuredBy(t, text), "--routing-prefill", policy, "--routing-decode", policy)
	g := startChanging(t, rigConfig{flags: flags})
	g.prefill, g.decode = prefill, decode
	return g
}

// wantRequests compares how many requests the two instances of a role have got.
func wantRequests(t *testing.T, role string, instances []*vllmsim.Instance, want [2]int) {
	t.Helper()
	if got := [2]int{instances[0].Stats().Requests, instances[1].Stats().Requests}; got != want {
		t.Errorf("%s requests by instance: %v, want %v", role, got, want)
	}
}

func TestFleet_WeightsShareTurnsInTurn(t *testing.T) {
	t.Parallel()
	g := startWeighted(t, "round_robin")
	for i := range 8 {
		g.thread(strconv.Itoa(i)).turn(t, "first_turn")
	}
	wantRequests(t, config.RolePrefill, g.prefill, [2]int{6, 2})
	wantRequests(t, config.RoleDecode, g.decode, [2]int{6, 2})
	g.verify(t, pins{})
}

func TestFleet_WeightsShareLoad(t *testing.T) {
	t.Parallel()
	g := startWeighted(t, "least_loaded")
	var all []*under
	for i := range 8 { // all at once: each comes while those before are under way
		all = append(all, g.thread(strconv.Itoa(i)).begin(t, g.decode...))
	}
	wantRequests(t, config.RoleDecode, g.decode, [2]int{6, 2})
	for _, u := range all {
		u.pace(t, 0)
	}
	for _, u := range all {
		u.check(t, <-u.ended, "first_turn", nil)
	}
	g.verify(t, pins{})
}

package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"carryover/cmd/carryover/config"
	"carryover/upstream"
	"carryover/upstream/vllmsim"
)

// plainTurn is one turn of a conversation of its own, and where its legs went.
func (o *operated) plainTurn(t *testing.T, text string) (status int, prefill, decode string) {
	t.Helper()
	a, record := o.send(t, "", map[string]any{"model": "sim", "messages": []json.RawMessage{question(text + " SAY yes")}, "max_tokens": 5})
	if a.status == http.StatusOK && a.content != "yes" {
		t.Errorf("got %q, want yes: %.300s", a.content, a.raw)
	}
	return a.status, record.Leg(upstream.RolePrefill).Instance, record.Leg(upstream.RoleDecode).Instance
}

// name is how records name an instance.
func name(instance *vllmsim.Instance) string { return instance.URL()[len("http://"):] }

// A decode instance whose health is fine and whose completions fail opens its circuit: turns go to the other one, and one at a time
// tries it after a while, until it serves again.
func TestHealth_CircuitOfADecodeInstance(t *testing.T) {
	t.Parallel()
	o := startOperated(t, rigConfig{
		prefill: alike(1, asConfigured), decode: alike(2, asConfigured), flags: []string{"--routing-decode", "round_robin"},
	}, "")
	bad := o.decode[0]
	o.wantState(t, bad, "up", "")
	if err := bad.SetFault(vllmsim.Fault{Kind: vllmsim.FaultStatus}); err != nil {
		t.Fatal(err)
	}
	turns, failed := 0, 0
	for ; o.state(t, bad) == "up" && turns < 40; turns++ {
		if status, _, _ := o.plainTurn(t, fmt.Sprint(turns)); status != http.StatusOK {
			failed++
		}
	}
	o.wantState(t, bad, "open", `^5 legs in a row have failed since .* the last with status 500; one turn tries it at `)
	t.Logf("%d turns to open the circuit, %d of them failed", turns, failed)
	if failed > 0 {
		t.Errorf("%d of %d turns failed, and another instance serves", failed, turns)
	}
	opened, asked := o.shows(t, bad).Why, len(legs(bad))
	for i := range 6 {
		if status, _, decode := o.plainTurn(t, fmt.Sprint("open ", i)); status != http.StatusOK || decode != name(o.decode[1]) {
			t.Errorf("got status %d by %s while the circuit is open", status, decode)
		}
	}
	if o.shows(t, bad).Why == opened && len(legs(bad)) != asked { // no trial was due: after one, the circuit is open since another time
		t.Errorf("%d legs went to an open circuit", len(legs(bad))-asked)
	}
	if status, word := o.ready(t); status != http.StatusOK || word != "ready" {
		t.Errorf("readiness is %d %s", status, word)
	}
	if err := bad.ClearFaults(); err != nil {
		t.Fatal(err)
	}
	o.wantState(t, bad, "half_open", "one turn at a time tries it")
	for i := 0; o.state(t, bad) != "up" && i < 4; i++ {
		o.plainTurn(t, fmt.Sprint("trial ", i))
	}
	o.wantState(t, bad, "up", "")
	seen := map[string]int{}
	for i := range 6 {
		_, _, decode := o.plainTurn(t, fmt.Sprint("healed ", i))
		seen[decode]++
	}
	if len(seen) != 2 {
		t.Errorf("turns went to %v, want both instances again", seen)
	}
	o.verifyReads(t, o.sum(t, config.RolePrefill)["leased_pins"])
}

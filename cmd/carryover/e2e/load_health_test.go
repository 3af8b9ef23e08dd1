package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"carryover/cmd/carryover/config"
	"carryover/cmd/carryover/testrig"
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

// round has the fleet judge how long engines take, as after each round of probing. No engine is probed: the context has ended.
func (o *operated) round(t *testing.T) {
	t.Helper()
	ended, end := context.WithCancel(t.Context())
	end()
	if err := o.proxy.Fleet.Run(ended); err != nil {
		t.Error(err)
	}
}

// Slow prefill instances are ejected, the slowest first, and never so that more than half of them are out.
func TestHealth_SlowPrefillIsEjected(t *testing.T) { // alone: instances are told apart by their times
	o := startOperated(t, rigConfig{
		prefill: alike(7, func(c *vllmsim.Config) { c.Timing.PrefillPerToken = 50 * time.Microsecond }), decode: alike(1, asConfigured),
		flags: []string{"--routing-prefill", "round_robin"},
	}, "")
	for i, slowness := range []float64{30, 45} {
		if err := o.prefill[i].Switch(vllmsim.Switches{Slowness: &slowness}); err != nil {
			t.Fatal(err)
		}
	}
	slow, slower := o.prefill[0], o.prefill[1]
	// With two of seven out, one more may be ejected and not two.
	drained := o.prefill[5:]
	drain := func(instance *vllmsim.Instance, way string) {
		t.Helper()
		if status, body := o.operate(t, http.MethodPost, "/admin/instances/prefill/"+name(instance)+"/"+way); status != http.StatusOK {
			t.Fatalf("%s: %d %s", way, status, body)
		}
	}
	for _, instance := range drained {
		drain(instance, "drain")
		o.wantState(t, instance, "draining", "by the operator")
	}
	turns := 0
	traffic := func(n int) {
		t.Helper()
		var workers sync.WaitGroup
		for i := turns; i < turns+n; i++ {
			workers.Go(func() {
				if status, _, _ := o.plainTurn(t, fmt.Sprint(i, " ", longText(i))); status != http.StatusOK {
					t.Errorf("got status %d", status)
				}
			})
			if i%5 == 4 { // one for each instance at once
				workers.Wait()
			}
		}
		turns += n
	}
	traffic(55)
	o.round(t)
	o.wantState(t, slower, "up", "") // being late once is nothing
	traffic(10)
	o.round(t)
	o.wantState(t, slower, "ejected", `^it took [\d.]+ times as long as its role does, at .*; ejected until .*, times in a row: 1$`)
	o.wantState(t, slow, "up", "") // three of seven are out
	asked := len(legs(slower)) + len(legs(drained[0])) + len(legs(drained[1]))
	traffic(10)
	if got := len(legs(slower)) + len(legs(drained[0])) + len(legs(drained[1])) - asked; got != 0 {
		t.Errorf("%d legs went to instances that are out", got)
	}
	drain(drained[0], "undrain")
	o.round(t)
	o.wantState(t, slow, "ejected", "times as long")
	for _, instance := range o.prefill[2:6] {
		o.wantState(t, instance, "up", "")
	}
	if status, word := o.ready(t); status != http.StatusOK || word != "ready" {
		t.Errorf("readiness is %d %s", status, word)
	}
	o.verifyReads(t, o.sum(t, config.RolePrefill)["leased_pins"])
}

// Readiness follows what turns find out: without prefill decode serves alone unless that is an error, without decode nothing does.
func TestHealth_Readiness(t *testing.T) {
	t.Parallel()
	o := startOperated(t, rigConfig{prefill: alike(1, asConfigured), decode: alike(1, asConfigured)}, "")
	want := func(status int, word string) {
		t.Helper()
		if got, told := o.ready(t); got != status || told != word {
			t.Errorf("readiness is %d %s, want %d %s", got, told, status, word)
		}
	}
	refuse := func(instance *vllmsim.Instance) {
		t.Helper()
		if err := instance.SetFault(vllmsim.Fault{Kind: vllmsim.FaultRefuse}); err != nil {
			t.Fatal(err)
		}
		o.hangUp()
	}
	want(http.StatusOK, "ready")
	refuse(o.prefill[0])
	if status, _, _ := o.plainTurn(t, "without prefill"); status != http.StatusOK {
		t.Errorf("without prefill: status %d", status)
	}
	o.wantState(t, o.prefill[0], "down", "^it has refused connections since ")
	// It is held to be down for two seconds; a machine that is slower than that shows nothing.
	if status, word := o.ready(t); o.state(t, o.prefill[0]) == "down" && (status != http.StatusOK || word != "decode_only") {
		t.Errorf("readiness without prefill is %d %s", status, word)
	}
	o.reload(t, failing("error"))
	if status, word := o.ready(t); o.state(t, o.prefill[0]) == "down" && (status != http.StatusServiceUnavailable || word != "no_instance") {
		t.Errorf("readiness without prefill, where that is an error, is %d %s", status, word)
	}
	refuse(o.decode[0])
	if status, _, _ := o.plainTurn(t, "without both"); status != http.StatusServiceUnavailable {
		t.Errorf("without both: status %d", status)
	}
	want(http.StatusServiceUnavailable, "no_instance")
	for _, instance := range o.all("") {
		if err := instance.ClearFaults(); err != nil {
			t.Fatal(err)
		}
	}
	if !testrig.Eventually(func() bool {
		status, _, _ := o.plainTurn(t, "with both")
		return status == http.StatusOK
	}) {
		t.Error("with both again: no turn is served")
	}
	want(http.StatusOK, "ready")
	o.verifyReads(t, o.sum(t, config.RolePrefill)["leased_pins"])
}

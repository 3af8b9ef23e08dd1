package e2e

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"carryover/cmd/carryover/config"
	"carryover/cmd/carryover/config/configtest"
	"carryover/cmd/carryover/testrig"
	"carryover/upstream"
	"carryover/upstream/vllmsim"
)

// startOrchestrated runs the program in front of engines that answer params of their own: NIXL's, and a remote_host that nobody else
// knows, unless decode gets prefill's answer as it is.
func startOrchestrated(t *testing.T, form string, c rigConfig) *rig {
	t.Helper()
	o := &rig{cfg: vllmsim.DefaultConfig(), client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256}}, turns: newTurnLog()}
	o.args = strings.Join(slices.Concat(testrig.Patient(), steady, []string{"--connector", "orchestrated", "--orchestrated-form", form}, c.flags), " ")
	start := func(flag string, n int) (all []*vllmsim.Instance) {
		for range max(n, 1) {
			cfg := vllmsim.DefaultConfig()
			cfg.Bidirectional = false
			if form == config.OrchestratedParams {
				cfg.Host = "only-here.invalid"
			}
			all = append(all, startEngine(t, cfg))
			o.args += " " + flag + " " + all[len(all)-1].URL()
		}
		return all
	}
	o.prefill, o.decode = start("--prefill", len(c.prefill)), start("--decode", len(c.decode))
	cfg, err := configtest.Load(t, o.args)
	if err != nil {
		t.Fatal(err)
	}
	o.serve(t, cfg, c)
	return o
}

// startEngine starts an instance whose answers may name another host than the one where it listens.
func startEngine(t *testing.T, cfg vllmsim.Config) *vllmsim.Instance {
	t.Helper()
	if testing.Short() {
		t.Skip("drives the whole program")
	}
	instance, err := vllmsim.Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := instance.Close(); err != nil {
			t.Errorf("close instance: %v", err)
		}
	})
	return instance
}

// forms runs a test in both forms, for each kind of request.
func forms(t *testing.T, run func(t *testing.T, form string, ask func(text string) map[string]any)) {
	t.Helper()
	for _, form := range []string{config.OrchestratedParams, config.OrchestratedResponse} {
		t.Run(form, func(t *testing.T) {
			kinds(t, func(t *testing.T, ask func(string) map[string]any) { run(t, form, ask) })
		})
	}
}

func TestOrchestrated_DecodeReadsWhatPrefillHolds(t *testing.T) {
	forms(t, func(t *testing.T, form string, ask func(string) map[string]any) {
		o := startOrchestrated(t, form, rigConfig{})
		const want = "The harbour keeps every letter."
		members := ask(longText(1) + " SAY " + want)
		members["min_tokens"] = 2
		o.turnOver(t, members, want)
		if total := o.sum(t, config.RoleDecode); total["loads"] != 1 || total["computed_tokens"] != 1 {
			t.Errorf("decode computed %d prompt tokens after %d loads, want the last one only", total["computed_tokens"], total["loads"])
		}
		body := legs(o.decode[0])[0]
		params, answer := gjson.GetBytes(body, "kv_transfer_params"), gjson.GetBytes(body, "disagg_prefill_resp")
		if params.Exists() == answer.Exists() || answer.Exists() != (form == config.OrchestratedResponse) {
			t.Errorf("decode got %s", body)
		}
		if host := params.Get("remote_host").String(); params.Exists() && host != "127.0.0.1" {
			t.Errorf("decode was told of %s", host)
		}
		if prefill := legs(o.prefill[0])[0]; gjson.GetBytes(prefill, "min_tokens").Exists() || !gjson.GetBytes(prefill, "kv_transfer_params.do_remote_decode").Bool() {
			t.Errorf("prefill got %s", prefill)
		}
		o.verify(t, pins{})
	})
}

func TestOrchestrated_TwoTurnsReuseNothing(t *testing.T) {
	t.Parallel()
	o := startOrchestrated(t, config.OrchestratedParams, rigConfig{})
	d := foretold{rig: o, id: "c", stream: true}
	for range 2 {
		if a, record := d.say(t, longText(1)); a.reuse() != "miss;reason=ineligible_connector" || record.Stored == "yes" {
			t.Errorf("X-KV-Reuse %q, stored %q", a.reuse(), record.Stored)
		}
	}
	o.verify(t, pins{})
}

// Params that are missing, or none, leave the turn to decode.
func TestOrchestrated_ParamsThatAreNone(t *testing.T) {
	t.Parallel()
	for params, reason := range map[string]string{"": "decode_only;reason=connector", `[1]`: "decode_only;reason=prefill_failed", `"x"`: "decode_only;reason=prefill_failed"} {
		t.Run(params, func(t *testing.T) {
			t.Parallel()
			o := startOrchestrated(t, config.OrchestratedParams, rigConfig{})
			fault := vllmsim.Fault{Kind: vllmsim.FaultBadParams, Params: json.RawMessage(params)}
			leased := 1
			if params == "" {
				fault, leased = vllmsim.Fault{Kind: vllmsim.FaultNullParams}, 0
			}
			if err := o.prefill[0].SetFault(fault); err != nil {
				t.Fatal(err)
			}
			a, _ := o.sent(t, map[string]any{"model": "sim", "messages": []json.RawMessage{question("SAY yes")}, "max_tokens": 50})
			if path := a.header.Get("X-KV-Path"); a.status != http.StatusOK || a.content != "yes" || !strings.HasPrefix(path, reason) {
				t.Errorf("got status %d, %q, X-KV-Path %q, want %s", a.status, a.content, path, reason)
			}
			if gjson.GetBytes(legs(o.decode[0])[0], "kv_transfer_params").Exists() {
				t.Error("decode got params")
			}
			o.verify(t, pins{leased: leased})
		})
	}
}

// The second decode leg of one hand-over would read blocks that prefill has freed.
func TestOrchestrated_AFailedReadIsTriedAgainFromTheBeginning(t *testing.T) {
	t.Parallel()
	o := startOrchestrated(t, config.OrchestratedParams, rigConfig{})
	ask := map[string]any{"model": "sim", "messages": []json.RawMessage{question("SAY yes")}, "max_tokens": 50, "stream": true}
	act := func(context.Context) { o.prefill[0].Restart() } // when it has answered: decode finds another engine there
	o.between.once.Store(&act)
	record := o.turnOver(t, ask, "yes")
	prefills := 0
	for _, leg := range record.Legs {
		if leg.Role == upstream.RolePrefill {
			prefills++
		}
	}
	if prefills != 2 || record.Retries != 1 {
		t.Errorf("%d prefill legs and %d retries, want a fresh pair of legs", prefills, record.Retries)
	}
	o.verify(t, pins{})
}

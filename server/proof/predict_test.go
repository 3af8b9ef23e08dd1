package proof

import (
	"log/slog"
	"testing"
	"time"

	"carryover/convcache"
	"carryover/upstream"
	"carryover/upstream/body"
	"carryover/upstream/fleet"
	"carryover/upstream/fleet/facts"
	"carryover/upstream/routing"
	"carryover/upstream/vllmsim"
)

// incarnationsOf returns the incarnations of a simulated prefill and decode instance.
func incarnationsOf(t *testing.T, render bool) (prefill, decode *fleet.Incarnation) {
	t.Helper()
	client := upstream.NewClient(upstream.ClientConfig{DialTimeout: 2 * time.Second})
	t.Cleanup(client.Close)
	engines := fleet.New(fleet.Config{
		Client: client, Prefill: &routing.RoundRobin{}, Decode: &routing.RoundRobin{}, ReadLimit: time.Minute, AskLimit: time.Minute,
	})
	var instances []upstream.Instance
	for _, role := range []upstream.Role{upstream.RolePrefill, upstream.RoleDecode} {
		cfg := vllmsim.DefaultConfig()
		cfg.Role, cfg.Render = role.String(), render
		sim, err := vllmsim.Start(cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = sim.Close() })
		instance, err := upstream.NewInstance(role, "sim", sim.URL())
		if err != nil {
			t.Fatal(err)
		}
		instances = append(instances, instance)
	}
	engines.Set(instances)
	return engines.Engine(upstream.RolePrefill, "sim").Current(t.Context()), engines.Engine(upstream.RoleDecode, "sim").Current(t.Context())
}

// What is predicted of a prompt that has to be rendered is what Begin and Look find.
func TestPredict_OfAPromptThatIsRendered(t *testing.T) {
	secret, err := convcache.NewSecret([]byte("0123456789abcdef"))
	if err != nil {
		t.Fatal(err)
	}
	proof := NewTokens(secret.ChainKey(), slog.New(slog.DiscardHandler))
	for _, row := range []struct {
		api          body.API
		body         string
		render       bool
		lacks, miss  string // of Begin and Look
		before, then Prediction
	}{
		{
			body.Messages, `{"model":"sim","max_tokens":1,"messages":[{"role":"user","content":"x"}]}`, true, "", "",
			Prediction{Asks: AsksTokens}, Prediction{Asks: AsksTokens},
		},
		{
			body.Messages, `{"model":"sim","max_tokens":1,"messages":[{"role":"user","content":"x"}]}`, false, LacksRender, Unproven(LacksRender),
			Prediction{Asks: AsksTokens}, Prediction{Lacks: LacksRender},
		},
		{
			body.Responses, `{"model":"sim","input":"x"}`, true, "", "",
			Prediction{Asks: AsksTokens}, Prediction{Asks: AsksTokens},
		},
		{
			body.Responses, `{"model":"sim","input":"x"}`, false, "", Unproven(LacksRender),
			Prediction{Asks: AsksTokens}, Prediction{Miss: Unproven(LacksRender)},
		},
	} {
		prefill, decode := incarnationsOf(t, row.render)
		a := Attempt{Prefill: prefill, Decode: decode}
		req, err := body.ParseRequest(row.api, []byte(row.body))
		if err != nil {
			t.Fatal(err)
		}
		turn, why := proof.Admit(req)
		if why != "" {
			t.Fatalf("%s: %s", row.api.Path(), why)
		}
		if got, want := turn.Predict(a), (Prediction{Asks: AsksProbe}); got != want {
			t.Errorf("%s, render %t, decode not probed: %+v, want %+v", row.api.Path(), row.render, got, want)
		}
		if got := decode.Capability.Probe(t.Context(), row.api, ""); got != facts.Yes {
			t.Fatalf("%s: decode's probe says %d", row.api.Path(), got)
		}
		// Prefill computes the ids as a text completion, and needs no probe.
		if got := turn.Predict(a); got != row.before {
			t.Errorf("%s, render %t, not asked: %+v, want %+v", row.api.Path(), row.render, got, row.before)
		}
		if lacks := turn.Begin(t.Context(), a); lacks != row.lacks {
			t.Errorf("%s, render %t: lacks %q, want %q", row.api.Path(), row.render, lacks, row.lacks)
		}
		if miss := turn.Look(t.Context()); miss != row.miss {
			t.Errorf("%s, render %t: miss %q, want %q", row.api.Path(), row.render, miss, row.miss)
		}
		if got := turn.Predict(a); got != row.then {
			t.Errorf("%s, render %t: %+v, want %+v", row.api.Path(), row.render, got, row.then)
		}
	}
}

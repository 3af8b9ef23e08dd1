package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"carryover/cmd/carryover/config"
	"carryover/convcache/redistest"
	"carryover/server"
	"carryover/upstream"
	"carryover/upstream/vllmsim"
)

// The scenarios of LMCache and Mooncake that are no file: see testdata/scenarios/lmcache*.yaml and mooncake.yaml.

// longAsked is a request of several chunks.
func longAsked(n int) object {
	return object{"model": "sim", "temperature": 0, "max_tokens": 400, "prompt": longAsk(n, ""), "stream": n%2 == 0}
}

// asAlone sends the n-th request, and wants the answer of the engine alone, over prefill.
func (r *rig) asAlone(t *testing.T, n int) {
	t.Helper()
	a := r.say(t, longAsked(n))
	if r.compare(t, "/v1/completions", encode(longAsked(n)), a); !strings.HasPrefix(a.header.Get("X-KV-Path"), "prefill_decode;") {
		t.Errorf("X-KV-Path: got %q, want prefill and decode", a.header.Get("X-KV-Path"))
	}
}

// verifyLMCache ends the program and asserts that nothing was read wrongly, and that no sender has got what would end it.
func (r *rig) verifyLMCache(t *testing.T) {
	t.Helper()
	r.verify(t, pins{})
	r.verifyConnector(t)
}

const slowTransfer = `{"timing":{"transfer_per_block":20000000}}`

// cut has the program end without waiting for turns whose KV never comes. Their hand-over budget is short: the command line would refuse one that
// is shorter than the time of a dial, and a busy machine needs that time.
func cut(c *server.Config) { c.DrainDelay, c.HandoverBudget = time.Millisecond, 1500*time.Millisecond }

// While prompts come that no hand-over serves, senders are probed, and the program begins and ends, nothing but legs with a spec
// reaches a sender: anything else would end it.
func TestLMCache_SendersGetNothingButHandOvers(t *testing.T) {
	t.Parallel()
	r := startRig(t, rigConfig{connector: config.ConnectorLMCache, alone: true, prefills: 2, decodes: 2, probed: true})
	chat := `"messages":` + string(encode(speech{question("SAY it " + longText(1))}))
	for i, members := range []string{
		`"messages":[{"role":"user","content":[{"type":"text","text":"What is it?"},{"type":"image_url","image_url":{"url":"data:image/png;base64,iVBORw0KGgo="}}]}]`,
		`"prompt":["one","two"]`, chat + `,"n":2,"temperature":1`, chat + `,"use_beam_search":true`, chat + `,"model":"another"`, chat + `,"max_tokens":0`, `"messages":[]`,
		`"prompt":""`, chat + `,"logprobs":true`, chat + `,"kv_transfer_params":{"ret_first_tok":true}`, `"prompt":"SAY it","kv_transfer_params":{"disagg_spec":{"req_id":"x"}}`, chat,
	} {
		body := object{"model": "sim", "max_tokens": 40, "stream": i%2 == 0}
		fill(t, &body, []byte("{"+members+"}"))
		r.say(t, body)
	}
	before := r.atPrefill("requests_total")
	if !within(foundWithin, func() bool { return r.atPrefill("requests_total") >= before+6 }) { // rounds of probing go by
		t.Error("senders are not probed")
	}
	r.verifyLMCache(t)
}

// Two replicas share an address for notifications, as behind a name; each sender is connected to one of them. Notifications reach the
// replica whose turn it is through Redis.
func TestLMCache_ReplicasRelayNotifications(t *testing.T) {
	t.Parallel()
	c := rigConfig{
		connector: config.ConnectorLMCache, alone: true, cfg: engineWith(`{"lmcache":{"tp":2},"timing":{"transfer_per_block":1000000}}`),
		prefills: 2, decodes: 2, redis: redistest.Start(t).Addr(), flags: []string{"--routing-prefill", "round_robin"},
	}
	first := startRig(t, c)
	c.sharing, c.alone, c.port = first, false, freePort(t)
	noError(t, first.prefill[1].Switch(vllmsim.Switches{ProxyPort: &c.port}))
	second := startRig(t, c)
	for n := range 12 {
		[]*rig{first, second}[n/2%2].asAlone(t, n)
	}
	second.stop()
	first.verifyLMCache(t)
}

// replanning is a connector whose plans are changed.
type replanning struct {
	upstream.Connector
	change func(plan *upstream.Plan)
}

// Plan implements upstream.Connector.
func (c replanning) Plan(ctx context.Context, t upstream.Transfer) (upstream.Plan, error) {
	plan, err := c.Connector.Plan(ctx, t)
	if err == nil {
		c.change(&plan)
	}
	return plan, err
}

// Prefill computes another prompt than decode.
func TestMutant_MooncakeLegsOfOtherIDsAreNoticed(t *testing.T) {
	t.Parallel()
	r := startRig(t, rigConfig{connector: config.ConnectorMooncake, replace: func(deps *server.Deps) {
		deps.Connector = replanning{deps.Connector, func(plan *upstream.Plan) {
			plan.Handover = func(upstream.PrefillAnswer) (*upstream.Handover, error) { return plan.Together, nil } // without its check
			for i, m := range plan.Prefill.Members {
				if m.Name == "kv_transfer_params" {
					plan.Prefill.Members[i].Value = []byte(strings.Replace(string(m.Value), `"prompt_token_ids":[`, `"prompt_token_ids":[300,`, 1))
				}
			}
		}}
	}})
	a := r.say(t, object{"model": "sim", "messages": speech{question(longText(1) + " SAY Yes.")}, "max_tokens": 50})
	if n := r.wrong(); n == 0 || a.content == "Yes." {
		t.Errorf("got %q and %d wrong reads, want another answer and some", a.content, n)
	}
}

// The scenarios would see a program that does not wait: decode reads garbage then. That it is right as it is, testdata/scenarios/lmcache.yaml says.
func TestLMCache_MutantThatDoesNotWait(t *testing.T) {
	t.Parallel()
	r := startRig(t, rigConfig{connector: config.ConnectorLMCache, cfg: engineWith(slowTransfer), replace: func(deps *server.Deps) {
		deps.Connector = replanning{deps.Connector, func(plan *upstream.Plan) { plan.Ready = func(context.Context) error { return nil } }}
	}})
	// A decode that comes before prefill's first chunk is announced to its receiver computes all by itself, rightly.
	right := true
	for n := 1; n <= 50 && right; n++ {
		right = r.say(t, longAsked(n)).content == longText(n+5)+"."
	}
	r.stop()
	if total := r.sum(""); total["early_reads"] == 0 || total["corrupt_reads"] == 0 || right {
		t.Errorf("decode did not wait, and nobody noticed: %d early reads, %d corrupt", total["early_reads"], total["corrupt_reads"])
	}
}

// underWay sends a request, and returns what waits for its answer once KV of it is on its way.
func (r *rig) underWay(t *testing.T) (compare func()) {
	t.Helper()
	done := make(chan *answered, 1)
	go func() { done <- r.say(t, longAsked(1)) }()
	if !within(foundWithin, func() bool { return r.atDecode("chunks_held") > 0 }) {
		t.Fatal("nothing was allocated")
	}
	return func() {
		if a := <-done; a.status == http.StatusOK {
			r.compare(t, "/v1/completions", encode(longAsked(1)), a)
		}
	}
}

// A sender that dies while it transfers leaves chunks at the receiver which are found and whose bytes never come. What decode computes
// alone from then on must not be made of them.
func TestLMCache_SenderDiesInTransfer(t *testing.T) {
	t.Parallel()
	for mode, flags := range map[string][]string{vllmsim.LMCacheAsync: nil, vllmsim.LMCacheSync: {"--prefill-failure", "decode_only"}} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			r := startRig(t, rigConfig{connector: config.ConnectorLMCache, alone: true, flags: flags, server: cut, cfg: engineWith(fmt.Sprintf(`{"lmcache":{"mode":%q},"timing":{"transfer_per_block":100000000}}`, mode))})
			compare := r.underWay(t)
			r.prefill[0].Restart()
			r.setFault(t, r.prefill[0], vllmsim.Fault{Kind: vllmsim.FaultRefuse})
			r.hangUp()
			compare()
			for range 2 {
				if a := r.say(t, longAsked(1)); a.status == http.StatusOK {
					r.compare(t, "/v1/completions", encode(longAsked(1)), a)
				}
			}
			r.nothingWrong(t)
		})
	}
}

// What decode serves alone while the KV of another turn with the same beginning is on its way must not be made of what has not arrived.
func TestLMCache_DecodeAloneWhileOthersTransfer(t *testing.T) {
	t.Parallel()
	r := startRig(t, rigConfig{connector: config.ConnectorLMCache, alone: true, cfg: engineWith(slowTransfer)})
	compare := r.underWay(t)
	several := longAsked(1)
	several["n"], several["temperature"] = 2, 1
	if a := r.say(t, several); a.status != http.StatusOK { // no hand-over serves several choices
		t.Errorf("got %d: %.300s", a.status, a.raw)
	}
	compare()
	r.nothingWrong(t)
}

// Storage that loses what it has costs time and nothing else.
func TestStorage_Losses(t *testing.T) {
	t.Parallel()
	r := startRig(t, rigConfig{connector: config.ConnectorLMCacheStorage, alone: true})
	r.asAlone(t, 1)
	stored, err := filepath.Glob(r.folder + "/*")
	if err != nil || len(stored) == 0 {
		t.Fatalf("stored %v (%v)", stored, err)
	}
	for i, chunk := range stored {
		if i%2 == 0 {
			err = os.Truncate(chunk, 10)
		} else {
			err = os.Remove(chunk)
		}
		noError(t, err)
	}
	for _, instance := range r.all("") {
		instance.Restart()
	}
	r.hangUp()
	r.look()
	r.asAlone(t, 1)
	r.verify(t, pins{})
}

package e2e

import (
	"net/http"
	"slices"
	"testing"

	"github.com/tidwall/gjson"

	"carryover/cmd/carryover/config"
	"carryover/upstream"
	"carryover/upstream/vllmsim"
)

// models asks the program what is served.
func (r *rig) models(t *testing.T) gjson.Result {
	t.Helper()
	status, body := askBare(t, r.client, http.MethodGet, r.base+"/v1/models")
	if status != http.StatusOK {
		t.Fatalf("/v1/models: %d %s", status, body)
	}
	return gjson.ParseBytes(body)
}

// wantModels compares the names that are listed.
func (r *rig) wantModels(t *testing.T, want ...string) gjson.Result {
	t.Helper()
	list := r.models(t)
	var got []string
	for _, id := range list.Get("data.#.id").Array() {
		got = append(got, id.String())
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("models %v, want %v", got, want)
	}
	return list
}

// speaks is another model's thread that goes on with the messages of this one, in the same conversation.
func (h *thread) speaks(model string) *thread {
	other := h.thread(h.id + "-" + model)
	other.conversation, other.model, other.messages = h.conversation, model, slices.Clone(h.messages)
	return other
}

// startModels runs the program in front of a prefill and a decode instance for each of two models, and returns when it knows
// what each serves.
func startModels(t *testing.T) *changing {
	t.Helper()
	alpha, beta := vllmsim.DefaultConfig(), vllmsim.DefaultConfig()
	alpha.Model, alpha.Seed = "alpha", 1
	beta.Model, beta.Seed, beta.MaxModelLen = "beta", 2, 4096
	pair := []vllmsim.Config{alpha, beta}
	g := startChanging(t, rigConfig{prefill: pair, decode: pair, probed: true, flags: []string{"--routing-prefill", "round_robin", "--routing-decode", "round_robin"}})
	known := func() bool {
		for _, role := range []upstream.Role{upstream.RolePrefill, upstream.RoleDecode} {
			for _, engine := range g.proxy.Fleet.Engines(role) {
				if engine.Live().Models == nil {
					return false
				}
			}
		}
		return true
	}
	if !within(foundWithin, known) {
		t.Fatal("the lists of models are not read")
	}
	return g
}

func TestFleet_RequestsGoWhereTheirModelIsServed(t *testing.T) {
	t.Parallel()
	g := startModels(t)
	const adapter = "alpha-lora"
	g.wantModels(t, "alpha", "beta")

	a := g.thread("a")
	a.model = "alpha"
	a.turn(t, "first_turn", g.decode[0])
	a.turn(t, hit, g.decode[0])
	b := a.speaks("beta") // the same conversation, and the same text
	b.turn(t, "nothing_stored", g.decode[1])
	b.turn(t, hit, g.decode[1])
	a.turn(t, hit, g.decode[0])

	for _, instance := range []*vllmsim.Instance{g.prefill[0], g.decode[0]} {
		if err := instance.Switch(vllmsim.Switches{Adapters: &[]string{adapter}}); err != nil {
			t.Fatal(err)
		}
	}
	c := a.speaks(adapter) // which no list has yet: all are read before it is said to be served by none
	c.turn(t, "nothing_stored", g.decode[0])
	c.turn(t, hit, g.decode[0])
	a.turn(t, hit, g.decode[0])
	b.turn(t, hit, g.decode[1])
	list := g.wantModels(t, "alpha", adapter, "beta")
	if got := list.Get(`data.#(id=="beta").max_model_len`).Int(); got != 4096 {
		t.Errorf("max_model_len of beta: got %d, want what its instance says, 4096", got)
	}
	if got := list.Get(`data.#(id=="` + adapter + `").parent`).String(); got != "alpha" {
		t.Errorf("parent of the adapter: got %q, want alpha", got)
	}

	a.speaks("gamma").refused(t, http.StatusNotFound, "model_not_found")
	for role, pair := range map[string][]*vllmsim.Instance{config.RolePrefill: g.prefill, config.RoleDecode: g.decode} {
		for i, served := range [][]string{{"alpha", adapter}, {"beta"}} {
			for _, body := range legs(pair[i]) {
				if model := gjson.GetBytes(body, "model").String(); !slices.Contains(served, model) {
					t.Errorf("%s instance of %v got a request for %s", role, served, model)
				}
			}
		}
	}
	g.verify(t, pins{})
}

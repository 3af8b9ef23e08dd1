package e2e

import (
	"log/slog"
	"testing"

	"carryover/cmd/carryover/app"
	"carryover/cmd/carryover/config"
	"carryover/cmd/carryover/config/configtest"
	"carryover/cmd/carryover/testrig"
	"carryover/upstream"
	"carryover/upstream/body"
	"carryover/upstream/fleet/facts"
	"carryover/upstream/vllmsim"
)

// The server that is named renders, and not the prefill instance, which could.
func TestConfig_RenderReachesTheFleet(t *testing.T) {
	engine, render := vllmsim.DefaultConfig(), vllmsim.DefaultConfig()
	engine.Role, engine.Render, render.Render = config.RolePrefill, true, true
	prefill, server := testrig.StartInstance(t, engine, ""), testrig.StartInstance(t, render, "")
	cfg, err := configtest.Load(t, "--prefill "+prefill.URL()+" --render "+server.URL()+"/")
	if err != nil {
		t.Fatal(err)
	}
	p, _, err := app.NewParts(app.Configured{Config: cfg}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	instance, err := upstream.NewInstance(upstream.RolePrefill, "p", prefill.URL())
	if err != nil {
		t.Fatal(err)
	}
	p.Fleet.Set([]upstream.Instance{instance})
	incarnation := p.Fleet.Engine(upstream.RolePrefill, "p").Current(t.Context())
	req, err := body.ParseRequest(body.Messages, []byte(`{"model":"sim","max_tokens":1,"messages":[{"role":"user","content":"x"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	if prompt, err := incarnation.Prompts.Read(t.Context(), req, ""); err != nil || len(prompt.IDs) == 0 || incarnation.Prompts.Renders(body.Messages) != facts.Yes {
		t.Errorf("got %v, %v", prompt.IDs, err)
	}
	if asked := server.Requests(); len(asked) != 1 || asked[0].Path != "/v1/messages/render" {
		t.Errorf("the server was asked %v", asked)
	}
}

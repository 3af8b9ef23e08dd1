package e2e

import (
	"context"
	"io"
	"testing"

	"carryover/cmd/carryover/app"
	"carryover/cmd/carryover/cli"
	"carryover/convcache"
	"carryover/server"
	"carryover/server/proof"
	"carryover/upstream/body"
	"carryover/upstream/vllmsim"
)

// unproven is a proof that proves nothing: every branch fits, as vLLM's example proxy takes it. It exists so that the suites
// can be seen to fail.
type unproven struct{ proof.Proof }

// Admit implements proof.Proof.
func (u unproven) Admit(req *body.Request) (proof.Turn, string) {
	turn, why := u.Proof.Admit(req)
	if turn == nil {
		return nil, why
	}
	return unprovenTurn{turn}, why
}

type unprovenTurn struct{ proof.Turn }

// Offer implements proof.Turn.
func (t unprovenTurn) Offer(b convcache.Branch) convcache.Offer {
	if b.Tokens <= len(t.IDs().Prompt()) {
		return convcache.Offer{Tokens: b.Tokens, Whole: true}
	}
	return t.Turn.Offer(b)
}

// runUnproven is the program with that proof.
func runUnproven(ctx context.Context, args, env []string, stdout, stderr io.Writer) int {
	return cli.RunWithServe(ctx, args, env, stdout, stderr, func(ctx context.Context, cfg app.Configured, stderr io.Writer) error {
		logger, _ := app.NewLogger(cfg.Log, stderr)
		p, deps, err := app.NewParts(cfg, logger)
		if err != nil {
			return err
		}
		deps.Tokens = unproven{deps.Tokens}
		p.Server = server.New(app.NewServerConfig(cfg.Config, logger), deps)
		return p.Serve(ctx, cfg, logger)
	})
}

func TestMutant_WithAProofThatProvesNothingTheOracleSeesIt(t *testing.T) {
	for _, mutant := range []bool{false, true} {
		t.Run(map[bool]string{false: "as it is", true: "mutant"}[mutant], func(t *testing.T) {
			r := startMutated(t, func(deps *server.Deps) {
				if mutant {
					deps.Tokens = unproven{deps.Tokens}
				}
			})
			c := &chatting{rig: r, id: "unproven", cfg: vllmsim.DefaultConfig()}
			for range 4 { // both instances know the shapes
				c.turn(t)
			}
			last := len(c.h.messages) - 1
			c.h.messages[last] = encode(map[string]string{"role": "assistant", "content": longText(60) + longText(61)})
			r.askAs(t, "unproven", append(c.h.messages, question("SAY "+longText(77)+"."))...)
			r.noticed(t, mutant)
		})
	}
}

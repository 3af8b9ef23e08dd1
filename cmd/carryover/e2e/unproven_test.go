package e2e

import (
	"context"
	"io"

	"carryover/cmd/carryover/app"
	"carryover/cmd/carryover/cli"
	"carryover/server"
	"carryover/upstream"
)

// runUnproven is the program with tickets that are never cut: where anything is proven of one, all of it is sent, as vLLM's example proxy
// does. It exists so that the suites can be seen to fail.
func runUnproven(ctx context.Context, args, env []string, stdout, stderr io.Writer) int {
	return cli.RunWithServe(ctx, args, env, stdout, stderr, func(ctx context.Context, cfg app.Configured, stderr io.Writer) error {
		logger, _ := app.NewLogger(cfg.Log, stderr)
		p, deps, err := app.NewParts(cfg, logger)
		if err != nil {
			return err
		}
		deps.Connector = offering{deps.Connector, func(o *upstream.TicketOffer) { o.Tokens = heldBy(o) }}
		settings := app.NewServerConfig(cfg.Config, logger)
		settings.ReuseMinTokens, settings.ReuseMinShare = 1, 0
		p.Server = server.New(settings, deps)
		return p.Serve(ctx, cfg, logger)
	})
}

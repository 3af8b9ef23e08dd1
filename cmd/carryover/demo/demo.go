// Package demo is the command that shows a conversation: the program with its default settings, simulated instances, a client, and a table of
// its turns.
package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"carryover/cmd/carryover/app"
	"carryover/cmd/carryover/command"
	"carryover/cmd/carryover/config"
	"carryover/server/record"
)

// Options are the flags of the demo command.
type Options struct {
	host              string
	port              int
	turns             int
	once              bool
	Prefills, Decodes int
	Connector         string
	adminListen       string
	adminAsked        bool // the user chose the address
}

// NewCommand returns the command.
func NewCommand() *cobra.Command {
	var o Options
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show a conversation that reuses its KV, with simulated instances",
		Long: "Start simulated prefill and decode instances and the proxy in one process, hold a conversation that shows what\n" +
			"each turn reused and saved, and keep serving until interrupted. The proxy has its default settings. With a connector\n" +
			"that reuses nothing from decode to prefill it shows the way of each turn, and what decode loaded of the prompt.",
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, name := range []string{"host", "port", "admin-listen"} { // same meaning as for serve
				value, set := os.LookupEnv("CARRYOVER_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_")))
				if !set || cmd.Flags().Changed(name) {
					continue
				}
				if err := cmd.Flags().Set(name, value); err != nil {
					return &command.UsageError{Err: fmt.Errorf("environment: %w", err)}
				}
			}
			if o.turns < 2 || o.Prefills < 1 || o.Decodes < 1 {
				return &command.UsageError{Err: errors.New("demo needs --turns of at least 2 and at least one instance of each role")}
			}
			if all := config.Connectors(); !slices.Contains(all, o.Connector) {
				return &command.UsageError{Err: fmt.Errorf("demo --connector %s: want %s%s", o.Connector, config.Choice(all), command.Meant(o.Connector, all))}
			}
			o.adminAsked = cmd.Flags().Changed("admin-listen")
			if err := o.checkAdmin(); err != nil {
				return err
			}
			engines, err := StartDeployment(o)
			if err != nil {
				return err
			}
			defer engines.Close()
			return engines.present(cmd.Context(), o, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.host, "host", "127.0.0.1", "address of the proxy")
	flags.IntVar(&o.port, "port", 8000, "port of the proxy, 0 lets the system choose")
	flags.IntVar(&o.turns, "turns", 6, "turns of the conversation")
	flags.BoolVar(&o.once, "once", false, "exit after the conversation, with 0 only if every turn went by prefill and decode, no KV was read wrongly, and (nixl, multi) prefill read KV from decode for each later turn")
	flags.IntVar(&o.Prefills, "prefills", 2, "simulated prefill instances")
	flags.IntVar(&o.Decodes, "decodes", 2, "simulated decode instances")
	flags.StringVar(&o.Connector, "connector", config.ConnectorNIXL, "KV connector of the instances: "+strings.Join(config.Connectors(), ", "))
	flags.StringVar(&o.adminListen, "admin-listen", config.AdminDefault, "address of the listener for operators and their page, a free port if this one is taken; off for none")
	command.CompleteValues(cmd, "connector", config.Connectors())
	return cmd
}

func (d *Deployment) present(ctx context.Context, o Options, stdout, stderr io.Writer) error {
	logger, level := app.NewLogger(config.LogConfig{Format: config.LogText, Level: "warn"}, stderr)
	show := &conversationDemo{
		out: stdout, records: make(chan record.Turn, 64), engines: d, reuses: d.Settings.Connector.ReusesKV(),
	}
	proxy, err := app.NewProxy(app.Configured{Config: d.Settings}, logger, show.observe)
	if err != nil {
		return err
	}
	proxy.Level = level
	listener, err := app.ListenAt(ctx, net.JoinHostPort(o.host, fmt.Sprint(o.port)), "a port with --port (make demo PORT=…)")
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	operators, err := o.openAdmin(ctx)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	if operators != nil {
		reload := func() error { return errors.New("a demo has no configuration to reload") }
		proxy.Alongside = append(proxy.Alongside, func(ctx context.Context) error { return proxy.ServeAdmin(ctx, operators, "", reload, logger) })
		_, _ = fmt.Fprintf(stdout, "The page for operators: %s\n\n", app.PageAt(operators))
	}
	show.base, show.fleet = "http://"+listener.Addr().String(), proxy.Fleet
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() error { return proxy.Run(groupCtx, listener) })
	group.Go(func() error {
		missed, err := show.run(groupCtx, o.turns)
		wrong := d.misread()
		switch {
		case groupCtx.Err() != nil:
			return nil
		case err != nil:
			return err
		case o.once && missed+wrong > 0:
			return fmt.Errorf("%d turns that did not transfer KV as they should, %d wrong reads", missed, wrong)
		case o.once:
			stop()
			return nil
		}
		show.invite()
		return nil
	})
	return group.Wait()
}

// checkAdmin refuses an address that other machines can reach: a demo has no token.
func (o *Options) checkAdmin() error {
	if o.adminListen == config.AdminOff {
		return nil
	}
	if host, _, err := net.SplitHostPort(o.adminListen); err != nil || !config.IsLoopback(host) {
		return &command.UsageError{Err: fmt.Errorf("demo --admin-listen %s: want a port of a loopback address, such as %s, or %s", o.adminListen, config.AdminDefault, config.AdminOff)}
	}
	return nil
}

// openAdmin returns nil if the listener is off. Any free port will do if the user chose none.
func (o *Options) openAdmin(ctx context.Context) (net.Listener, error) {
	listener, err := app.OpenAdmin(ctx, config.AdminConfig{Listen: o.adminListen})
	if errors.Is(err, syscall.EADDRINUSE) && !o.adminAsked {
		return app.OpenAdmin(ctx, config.AdminConfig{Listen: "127.0.0.1:0"})
	}
	return listener, err
}

// invite prints two requests; with tickets, the second one reuses the KV of the first.
func (d *conversationDemo) invite() {
	d.printf("\nServing on %s with %d prefill and %d decode instances. Try, one after the other:\n\n", d.base, len(d.engines.Prefill), len(d.engines.Decode))
	for _, body := range invitedTurns() {
		d.printf("curl -si %s/v1/chat/completions -H 'Content-Type: application/json' -d '%s'\n\n", d.base, body)
	}
	if d.reuses {
		d.printf("Agents and the SDKs of Anthropic and OpenAI hit from their second turn on, too, by /v1/messages and /v1/responses. "+
			"The answers make little sense: the model is simulated as well.\n\n"+
			"ANTHROPIC_BASE_URL=%[1]s ANTHROPIC_AUTH_TOKEN=any ANTHROPIC_MODEL=sim ANTHROPIC_DEFAULT_HAIKU_MODEL=sim claude\n\n"+
			"codex -c model=sim -c model_provider=demo -c 'model_providers.demo={name=\"demo\",base_url=\"%[1]s/v1\",wire_api=\"responses\"}'\n\n", d.base)
	}
	d.printf("curl -s %s/health\n\nCtrl-C ends it.\n", d.base)
}

func invitedTurns() []string {
	const said = "Carryover keeps the handle of the blocks that decode holds at the end of a turn, for less time than decode keeps the blocks, " +
		"and hands it to prefill when the next turn provably continues the same conversation. Then prefill reads what it would otherwise compute " +
		"again, and when anything about the history has changed it computes, because a wrong hand-over is worse than none."
	question := "SAY " + said
	turn := func(messages ...command.Message) string {
		messages = append([]command.Message{command.NewMessage("system", "You repeat.")}, messages...) // every prefill instance has shown parity for this shape
		body, _ := json.Marshal(map[string]any{"model": "sim", "max_tokens": 200, "messages": messages})
		return string(body)
	}
	return []string{
		turn(command.NewMessage("user", question)),
		turn(command.NewMessage("user", question), command.NewMessage("assistant", said), command.NewMessage("user", "Thank you.")),
	}
}

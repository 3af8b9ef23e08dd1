// Package demo is the command that shows a conversation through simulated engines: the program itself with its default settings, prefill
// and decode instances of the simulator, a client that talks, and a table of its turns.
package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"carryover/cmd/carryover/app"
	"carryover/cmd/carryover/command"
	"carryover/cmd/carryover/config"
	"carryover/upstream/vllmsim"
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
	adminAsked        bool // for this very address
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
			for _, name := range []string{"host", "port", "admin-listen"} { // as serve reads them
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
			if _, ok := demoSetups()[o.Connector]; !ok {
				return &command.UsageError{Err: fmt.Errorf("demo --connector %s: want %s%s", o.Connector, config.Choice(Connectors()), command.Meant(o.Connector, Connectors()))}
			}
			o.adminAsked = cmd.Flags().Changed("admin-listen")
			if err := o.checkAdmin(); err != nil {
				return err
			}
			return runDemo(cmd.Context(), o, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.host, "host", "127.0.0.1", "address of the proxy")
	flags.IntVar(&o.port, "port", 8000, "port of the proxy, 0 lets the system choose")
	flags.IntVar(&o.turns, "turns", 6, "turns of the conversation")
	flags.BoolVar(&o.once, "once", false, "exit after the conversation: 0 only if every turn went by prefill and decode, and (nixl, multi) prefill read KV from decode for each after the first, and nothing was read wrongly")
	flags.IntVar(&o.Prefills, "prefills", 2, "simulated prefill instances")
	flags.IntVar(&o.Decodes, "decodes", 2, "simulated decode instances")
	flags.StringVar(&o.Connector, "connector", config.ConnectorNIXL, "KV connector of the instances: "+strings.Join(Connectors(), ", "))
	flags.StringVar(&o.adminListen, "admin-listen", config.AdminDefault, "address of the listener for operators and their page, a free port if this one is taken; off for none")
	command.CompleteValues(cmd, "connector", Connectors())
	return cmd
}

// The modelled engine computes 5,000 prompt tokens and makes 200 tokens a second,
// so that prompts that fit on a screen show what reuse saves.
const (
	demoPrefillPerToken  = 200 * time.Microsecond
	demoTransferPerBlock = 50 * time.Microsecond
	demoInterToken       = 5 * time.Millisecond
)

// Deployment is a set of simulated instances, and the settings of the proxy in front of them.
type Deployment struct {
	Prefill, Decode []*vllmsim.Instance
	Settings        config.Config
	port            int      // port of the proxy to which instances send what their connector announces
	folder          string   // folder that the instances share
	undo            []func() // functions that Close calls
}

// StartDeployment starts simulated instances and makes the settings of a program in front of them.
func StartDeployment(o Options) (*Deployment, error) {
	d := &Deployment{Settings: config.Default()}
	if err := d.start(o); err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

// start starts the instances and completes the settings, which are the defaults of the program except for what the connector needs.
func (d *Deployment) start(o Options) error {
	c := &d.Settings
	c.Prefill, c.Decode, c.Connector.Name = nil, nil, o.Connector
	setup := demoSetups()[o.Connector]
	if setup.begin != nil {
		if err := setup.begin(d); err != nil {
			return fmt.Errorf("demo of %s: %w", o.Connector, err)
		}
	}
	for n := range o.Prefills + o.Decodes {
		role, number := config.RolePrefill, n+1
		if n >= o.Prefills {
			role, number = config.RoleDecode, n-o.Prefills+1
		}
		instance, err := vllmsim.Start(d.engine(role, setup))
		if err != nil {
			return fmt.Errorf("start simulated %s instance: %w", role, err)
		}
		listed := config.InstanceConfig{URL: instance.URL(), Name: fmt.Sprintf("%s-%d", role, number), KVHost: config.KVHostAuto}
		if role == config.RolePrefill {
			d.Prefill = append(d.Prefill, instance)
		} else {
			d.Decode = append(d.Decode, instance)
			listed.KVTTL = c.Store.DecoderKVTTL
		}
		if setup.started != nil {
			setup.started(d, instance, &listed)
		}
		*c.Instances(role) = append(*c.Instances(role), listed)
	}
	if setup.end != nil {
		return setup.end(d)
	}
	return nil
}

func (d *Deployment) engine(role string, setup demoSetup) vllmsim.Config {
	cfg := vllmsim.DefaultConfig()
	cfg.Role = role
	cfg.Render, cfg.OutputTokenIDs, cfg.MessageParams = true, true, true // what engines need for agents
	cfg.Timing = vllmsim.Timing{
		PrefillPerToken: demoPrefillPerToken, TransferPerBlock: demoTransferPerBlock, InterToken: demoInterToken,
	}
	if setup.engine != nil {
		setup.engine(d, &cfg)
	}
	return cfg
}

// Close ends the instances.
func (d *Deployment) Close() {
	for _, instance := range append(d.Prefill, d.Decode...) {
		_ = instance.Close()
	}
	for _, undo := range d.undo {
		undo()
	}
}

// pinned returns how many answers have blocks of decode that wait for a reader.
func (d *Deployment) pinned() (answers int) {
	for _, instance := range d.Decode {
		answers += instance.Stats().Pins
	}
	return answers
}

// misread returns how often an instance read KV that was not the KV of its prompt.
func (d *Deployment) misread() int {
	n := 0
	for _, instance := range append(d.Prefill, d.Decode...) {
		stats := instance.Stats()
		n += stats.CorruptReads + stats.DoubleReads
	}
	return n
}

func runDemo(ctx context.Context, o Options, stdout, stderr io.Writer) error {
	engines, err := StartDeployment(o)
	if err != nil {
		return err
	}
	defer engines.Close()
	return engines.present(ctx, o, stdout, stderr)
}

// present runs the proxy in front of the instances and the conversation through it.
func (d *Deployment) present(ctx context.Context, o Options, stdout, stderr io.Writer) error {
	records := newRecords()
	logger, level := app.NewLogger(config.LogConfig{Format: config.LogText, Level: "warn"}, stderr)
	proxy, err := app.NewProxy(app.Configured{Config: d.Settings}, logger, records.observe)
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
		tellOperators(proxy, operators, logger)
		_, _ = fmt.Fprintf(stdout, "The page for operators: %s\n\n", app.PageAt(operators))
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() error { return proxy.Run(groupCtx, listener) })
	group.Go(func() error {
		show := &conversationDemo{
			base: "http://" + listener.Addr().String(), out: stdout, records: records, engines: d, fleet: proxy.Fleet,
			reuses: d.Settings.Connector.ReusesKV(),
		}
		missed, err := show.run(groupCtx, o.turns)
		wrong := d.misread()
		switch {
		case groupCtx.Err() != nil:
			return nil
		case err != nil:
			return err
		case o.once && missed+wrong > 0:
			return fmt.Errorf("%d turns that did not go as they should, %d wrong reads", missed, wrong)
		case o.once:
			stop()
			return nil
		}
		show.invite()
		return nil
	})
	return group.Wait()
}

// checkAdmin refuses an address that other machines can reach, because a demo has no token.
func (o *Options) checkAdmin() error {
	if o.adminListen == config.AdminOff {
		return nil
	}
	if host, _, err := net.SplitHostPort(o.adminListen); err != nil || !config.IsLoopback(host) {
		return &command.UsageError{Err: fmt.Errorf("demo --admin-listen %s: want a port of a loopback address, such as %s, or %s", o.adminListen, config.AdminDefault, config.AdminOff)}
	}
	return nil
}

// openAdmin opens the listener for operators, nil if it is off. If the user did not ask for the address, any free port will do.
func (o *Options) openAdmin(ctx context.Context) (net.Listener, error) {
	listener, err := app.OpenAdmin(ctx, config.AdminConfig{Listen: o.adminListen})
	if errors.Is(err, syscall.EADDRINUSE) && !o.adminAsked {
		return app.OpenAdmin(ctx, config.AdminConfig{Listen: "127.0.0.1:0"})
	}
	return listener, err
}

// tellOperators makes the proxy answer operators while it runs.
func tellOperators(p *app.Proxy, listener net.Listener, logger *slog.Logger) {
	reload := func() error { return errors.New("a demo has no configuration that could be read again") }
	p.Alongside = append(p.Alongside, func(ctx context.Context) error { return p.ServeAdmin(ctx, listener, "", reload, logger) })
}

// invite prints requests that can be sent to the demo while it serves. If the connector
// reuses KV, the second request continues the first and reuses its KV.
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

// invitedTurns returns the bodies of two turns of a conversation.
func invitedTurns() []string {
	const said = "Carryover keeps the handle of the blocks that decode holds at the end of a turn, for less time than decode keeps the blocks, " +
		"and hands it to prefill when the next turn provably continues the same conversation. Then prefill reads what it would otherwise compute " +
		"again, and when anything about the history has changed it computes, because a wrong hand-over is worse than none."
	question := "SAY " + said
	turn := func(messages ...chatMessage) string {
		messages = append([]chatMessage{{"system", "You repeat."}}, messages...) // a shape that every prefill instance has been taught
		body, _ := json.Marshal(map[string]any{"model": "sim", "max_tokens": 200, "messages": messages})
		return string(body)
	}
	return []string{
		turn(chatMessage{"user", question}),
		turn(chatMessage{"user", question}, chatMessage{"assistant", said}, chatMessage{"user", "Thank you."}),
	}
}

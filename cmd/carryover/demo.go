package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"carryover/upstream/vllmsim"
)

// demoOptions are the flags of the demo command.
type demoOptions struct {
	host              string
	port              int
	turns             int
	once              bool
	prefills, decodes int
	connector         string
	adminListen       string
	adminAsked        bool // for this very address
}

func newDemoCommand() *cobra.Command {
	var o demoOptions
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show a conversation that reuses its KV, with simulated instances",
		Long: "Start simulated prefill and decode instances and the proxy in one process, hold a conversation that shows what\n" +
			"each turn reused and saved, and keep serving until interrupted. The proxy has its default settings. With a connector\n" +
			"that reuses nothing from decode to prefill it shows the way of each turn, and what decode loaded of the prompt.",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.turns < 2 || o.prefills < 1 || o.decodes < 1 {
				return &usageError{errors.New("demo needs --turns of at least 2 and at least one instance of each role")}
			}
			if _, ok := demoSetups()[o.connector]; !ok {
				return &usageError{fmt.Errorf("demo --connector %s: want %s%s", o.connector, choice(demoConnectors()), meant(o.connector, demoConnectors()))}
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
	flags.IntVar(&o.prefills, "prefills", 2, "simulated prefill instances")
	flags.IntVar(&o.decodes, "decodes", 2, "simulated decode instances")
	flags.StringVar(&o.connector, "connector", connectorNIXL, "KV connector of the instances: "+strings.Join(demoConnectors(), ", "))
	flags.StringVar(&o.adminListen, "admin-listen", adminDefault, "address of the listener for operators and their page, a free port if this one is taken; off for none")
	completeValues(cmd, "connector", demoConnectors())
	return cmd
}

// The modelled engine computes 5,000 prompt tokens and makes 200 tokens a second,
// so that prompts that fit on a screen show what reuse saves.
const (
	demoPrefillPerToken  = 200 * time.Microsecond
	demoTransferPerBlock = 50 * time.Microsecond
	demoInterToken       = 5 * time.Millisecond
)

// deployment is a set of simulated instances, and the settings of the proxy in front of them.
type deployment struct {
	prefill, decode []*vllmsim.Instance
	settings        Config
	port            int      // port of the proxy to which instances send what their connector announces
	folder          string   // folder that the instances share
	undo            []func() // functions that close calls
}

func startDeployment(o demoOptions) (*deployment, error) {
	d := &deployment{settings: defaultConfig()}
	if err := d.start(o); err != nil {
		d.close()
		return nil, err
	}
	return d, nil
}

// start starts the instances and completes the settings, which are the defaults of the program except for what the connector needs.
func (d *deployment) start(o demoOptions) error {
	c := &d.settings
	c.Prefill, c.Decode, c.Connector.Name = nil, nil, o.connector
	setup := demoSetups()[o.connector]
	if setup.begin != nil {
		if err := setup.begin(d); err != nil {
			return fmt.Errorf("demo of %s: %w", o.connector, err)
		}
	}
	for n := range o.prefills + o.decodes {
		role, number := rolePrefill, n+1
		if n >= o.prefills {
			role, number = roleDecode, n-o.prefills+1
		}
		instance, err := vllmsim.Start(d.engine(role, setup))
		if err != nil {
			return fmt.Errorf("start simulated %s instance: %w", role, err)
		}
		listed := InstanceConfig{URL: instance.URL(), Name: fmt.Sprintf("%s-%d", role, number), KVHost: kvHostAuto}
		if role == rolePrefill {
			d.prefill = append(d.prefill, instance)
		} else {
			d.decode = append(d.decode, instance)
			listed.KVTTL = c.Store.DecoderKVTTL
		}
		if setup.started != nil {
			setup.started(d, instance, &listed)
		}
		if !c.Connector.registers() {
			*c.instances(role) = append(*c.instances(role), listed)
		}
	}
	if setup.end != nil {
		return setup.end(d)
	}
	return nil
}

func (d *deployment) engine(role string, setup demoSetup) vllmsim.Config {
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

func (d *deployment) close() {
	for _, instance := range append(d.prefill, d.decode...) {
		_ = instance.Close()
	}
	for _, undo := range d.undo {
		undo()
	}
}

// pinned returns how many answers have blocks of decode that wait for a reader.
func (d *deployment) pinned() (answers int) {
	for _, instance := range d.decode {
		answers += instance.Stats().Pins
	}
	return answers
}

// misread returns how often an instance read KV that was not the KV of its prompt.
func (d *deployment) misread() int {
	n := 0
	for _, instance := range append(d.prefill, d.decode...) {
		stats := instance.Stats()
		n += stats.CorruptReads + stats.DoubleReads
	}
	return n
}

func runDemo(ctx context.Context, o demoOptions, stdout, stderr io.Writer) error {
	engines, err := startDeployment(o)
	if err != nil {
		return err
	}
	defer engines.close()
	return engines.present(ctx, o, stdout, stderr)
}

// present runs the proxy in front of the instances and the conversation through it.
func (d *deployment) present(ctx context.Context, o demoOptions, stdout, stderr io.Writer) error {
	records := newRecords()
	logger, level := newLogger(LogConfig{Format: logAuto, Level: "warn"}, stderr)
	proxy, err := newProxy(configured{Config: d.settings}, logger, records.observe)
	if err != nil {
		return err
	}
	proxy.level = level
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(o.host, fmt.Sprint(o.port)))
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	operators, err := o.openAdmin(ctx)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	if operators != nil {
		tellOperators(proxy, operators, logger)
		_, _ = fmt.Fprintf(stdout, "The page for operators: %s\n\n", pageAt(operators))
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() error { return proxy.run(groupCtx, listener) })
	group.Go(func() error {
		show := &conversationDemo{
			base: "http://" + listener.Addr().String(), out: stdout, records: records, engines: d, fleet: proxy.fleet,
			reuses: d.settings.Connector.reusesKV(),
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

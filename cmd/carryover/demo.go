package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
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
}

func newDemoCommand() *cobra.Command {
	var o demoOptions
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show a conversation that reuses its KV, with simulated instances",
		Long: "Start simulated prefill and decode instances and the proxy in one process, hold a conversation that shows what\n" +
			"each turn reused and saved, and keep serving until interrupted.",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.turns < 2 || o.prefills < 1 || o.decodes < 1 {
				return &usageError{errors.New("demo needs --turns of at least 2 and at least one instance of each role")}
			}
			return runDemo(cmd.Context(), o, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.host, "host", "127.0.0.1", "address of the proxy")
	flags.IntVar(&o.port, "port", 8000, "port of the proxy, 0 lets the system choose")
	flags.IntVar(&o.turns, "turns", 6, "turns of the conversation")
	flags.BoolVar(&o.once, "once", false, "exit after the conversation: 0 only if every turn after the first reused KV and nothing was read wrongly")
	flags.IntVar(&o.prefills, "prefills", 2, "simulated prefill instances")
	flags.IntVar(&o.decodes, "decodes", 2, "simulated decode instances")
	return cmd
}

// The modelled engine computes 5,000 prompt tokens and makes 125 tokens a second,
// so that what reuse saves can be seen with prompts that fit on a screen.
const (
	demoPrefillPerToken  = 200 * time.Microsecond
	demoTransferPerBlock = 50 * time.Microsecond
	demoInterToken       = 8 * time.Millisecond
)

// deployment is a set of simulated instances.
type deployment struct {
	prefill, decode []*vllmsim.Instance
}

func startDeployment(o demoOptions) (*deployment, error) {
	d := &deployment{}
	start := func(role string, n int, into *[]*vllmsim.Instance) error {
		for range n {
			cfg := vllmsim.DefaultConfig()
			cfg.Role = role
			cfg.Timing = vllmsim.Timing{
				PrefillPerToken: demoPrefillPerToken, TransferPerBlock: demoTransferPerBlock, InterToken: demoInterToken,
			}
			instance, err := vllmsim.Start(cfg)
			if err != nil {
				return fmt.Errorf("start simulated %s instance: %w", role, err)
			}
			*into = append(*into, instance)
		}
		return nil
	}
	if err := errors.Join(start("prefill", o.prefills, &d.prefill), start("decode", o.decodes, &d.decode)); err != nil {
		d.close()
		return nil, err
	}
	return d, nil
}

func (d *deployment) close() {
	for _, instance := range append(d.prefill, d.decode...) {
		_ = instance.Close()
	}
}

// config points the proxy at the simulated instances. Prefill is picked in turn: with affinity its own prefix cache would hide what
// comes from decode.
func (d *deployment) config() Config {
	cfg := defaultConfig()
	cfg.Prefill, cfg.Decode = nil, nil
	for i, instance := range d.prefill {
		cfg.Prefill = append(cfg.Prefill, InstanceConfig{URL: instance.URL(), Name: fmt.Sprintf("prefill-%d", i+1), KVHost: kvHostAuto})
	}
	for i, instance := range d.decode {
		cfg.Decode = append(cfg.Decode, InstanceConfig{URL: instance.URL(), Name: fmt.Sprintf("decode-%d", i+1), KVHost: kvHostAuto, KVTTL: cfg.Store.DecoderKVTTL})
	}
	cfg.Routing.Prefill = "round_robin"
	return cfg
}

// misread reports how often an instance read KV that was not what it asked for.
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
	records := newRecords()
	logger, _ := newLogger(LogConfig{Format: "text", Level: "warn"}, stderr)
	proxy, err := newProxy(engines.config(), logger, records.observe)
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(o.host, fmt.Sprint(o.port)))
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() error { return proxy.run(groupCtx, listener) })
	group.Go(func() error {
		show := &conversationDemo{base: "http://" + listener.Addr().String(), out: stdout, records: records, prefills: o.prefills}
		missed, err := show.run(groupCtx, o.turns)
		wrong := engines.misread()
		switch {
		case groupCtx.Err() != nil:
			return nil
		case err != nil:
			return err
		case o.once && missed+wrong > 0:
			return fmt.Errorf("%d turns without reuse, %d wrong reads", missed, wrong)
		case o.once:
			stop()
			return nil
		}
		show.invite(o)
		return nil
	})
	return group.Wait()
}

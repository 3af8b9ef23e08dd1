package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"carryover/cmd/carryover/command"
	"carryover/upstream/vllmsim"
)

func newSimCommand() *cobra.Command {
	cfg := vllmsim.DefaultConfig()
	cfg.Mooncake.BootstrapPort = 8998 // VLLM_MOONCAKE_BOOTSTRAP_PORT by default
	var host, release, set string
	var port, sidePort int
	cmd := &cobra.Command{
		Use:   "sim",
		Short: "Run one simulated vLLM instance",
		Long: "Run one simulated vLLM instance. It speaks the OpenAI API of vLLM with a KV connector and models block\n" +
			"ownership, so that reading wrong, stale or foreign KV is detected: GET /_sim/stats counts it, and POST\n" +
			"/_sim/faults breaks the instance in a chosen way. POST /_sim/config changes it: its timing, or how slow it is.",
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if cfg.Version, err = vllmsim.Release(release); err != nil {
				return fmt.Errorf("--vllm: %w", err)
			}
			more := json.NewDecoder(strings.NewReader(set))
			more.DisallowUnknownFields()
			if err := more.Decode(&cfg); err != nil {
				return &command.UsageError{Err: fmt.Errorf("sim --set %s: %w", set, err)}
			}
			instance, err := vllmsim.StartAt(cfg, net.JoinHostPort(host, strconv.Itoa(port)), net.JoinHostPort(host, strconv.Itoa(sidePort)))
			if err != nil {
				return fmt.Errorf("start simulated instance: %w", err)
			}
			_, _ = fmt.Fprintf(cmd.OutOrStdout(), "simulated %s instance serves %s\n", cfg.Role, instance.URL())
			tellPorts(cmd.OutOrStdout(), &cfg, instance)
			<-cmd.Context().Done()
			return instance.Close()
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&release, "vllm", "0.33", "release of vLLM whose answers it gives: 0.32 or 0.33")
	flags.StringVar(&cfg.Role, "role", "both", "prefill, decode or both; only for display: each request decides")
	flags.StringVar(&host, "host", "127.0.0.1", "address to listen on")
	flags.IntVar(&port, "port", 8100, "port of the OpenAI API, 0 lets the system choose")
	flags.IntVar(&sidePort, "side-port", 0, "port of the KV side channel, 0 lets the system choose")
	flags.StringVar(&cfg.Model, "model", cfg.Model, "served model name")
	flags.IntVar(&cfg.BlockSize, "block-size", cfg.BlockSize, "tokens per KV block")
	flags.IntVar(&cfg.Blocks, "blocks", cfg.Blocks, "KV capacity in blocks")
	flags.DurationVar(&cfg.KVTTL, "kv-ttl", cfg.KVTTL, "decoder_kv_blocks_ttl")
	flags.BoolVar(&cfg.MessageParams, "message-params", cfg.MessageParams, "streams of the Messages API carry kv_transfer_params on message_delta, as an engine plug-in can")
	flags.BoolVar(&cfg.OutputTokenIDs, "output-token-ids", cfg.OutputTokenIDs, "params carry output_token_ids, as an engine plug-in can")
	flags.BoolVar(&cfg.Render, "render", cfg.Render, "--enable-scale-out: the render endpoints answer with a prompt's ids")
	flags.IntVar(&cfg.MaxModelLen, "max-model-len", cfg.MaxModelLen, "context length in tokens, never more than the blocks hold")
	flags.StringVar(&cfg.APIKey, "api-key", "", "bearer token that requests must carry")
	flags.DurationVar(&cfg.Timing.PrefillPerToken, "prefill-per-token", 100*time.Microsecond, "modelled prefill time per computed token, a speed that all prompts share")
	flags.DurationVar(&cfg.Timing.TransferPerBlock, "transfer-per-block", 20*time.Microsecond, "modelled time to read a KV block")
	flags.DurationVar(&cfg.Timing.InterToken, "inter-token", 10*time.Millisecond, "modelled time between two tokens")
	flags.Float64Var(&cfg.TimeScale, "time-scale", cfg.TimeScale, "how much faster than the wall clock the engine's clock runs, leases and TTLs included")
	flags.StringVar(&cfg.Connector, "connector", cfg.Connector, "KV connector: nixl, lmcache, lmcache-storage or mooncake")
	flags.StringVar(&set, "set", "{}", "more of its configuration, as GET /_sim/config shows it, such as '{\"dp_ranks\": 2}'")
	return cmd
}

func tellPorts(out io.Writer, cfg *vllmsim.Config, instance *vllmsim.Instance) {
	if port := instance.Addresses().BootstrapPort; port > 0 {
		fmt.Fprintf(out, "its bootstrap server listens at port %d\n", port)
	}
	if at := instance.Addresses(); cfg.Connector == vllmsim.ConnectorLMCache && len(at.LMCacheInit) > 0 {
		fmt.Fprintf(out, "its LMCache receives at init ports %s, alloc ports %s\n", ports(at.LMCacheInit), ports(at.LMCacheAlloc))
	}
}

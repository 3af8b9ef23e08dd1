package ops

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"carryover/upstream/vllmsim/engine"
	"carryover/upstream/vllmsim/fault"
	"carryover/upstream/vllmsim/wire"
)

// PathMetrics is the path of the metrics.
const PathMetrics = "/metrics"

// serveMetrics writes the metrics of vLLM that routers and tests read, in Prometheus' text format and with the names in testdata/exchanges
// 19. Counters begin at zero with their engine.
func (o *Endpoints) serveMetrics(w http.ResponseWriter, f *fault.Active) error {
	var b strings.Builder
	engines := o.engines()
	stats := make([]engine.Stats, len(engines))
	for rank, e := range engines {
		stats[rank] = e.Snapshot()
	}
	family := func(name, kind string, samples func(rank int, sample func(labels string, value float64))) {
		fmt.Fprintf(&b, "# TYPE %s %s\n", name, kind)
		for rank := range engines {
			samples(rank, func(labels string, value float64) {
				fmt.Fprintf(&b, "%s{engine=\"%d\",model_name=%q%s} %s\n", name, rank, o.config().Model, labels, wire.PythonFloat(value))
			})
		}
	}
	one := func(name, kind string, value func(s *engine.Stats) int) {
		family(name, kind, func(rank int, sample func(string, float64)) { sample("", float64(value(&stats[rank]))) })
	}
	one("vllm:num_requests_running", "gauge", func(s *engine.Stats) int { return s.Running - s.Waiting - s.Loading - s.Parked })
	one("vllm:num_requests_waiting", "gauge", func(s *engine.Stats) int { return s.Waiting + s.Loading + s.Parked })
	family("vllm:num_requests_waiting_by_reason", "gauge", func(rank int, sample func(string, float64)) {
		sample(`,reason="capacity"`, float64(stats[rank].Waiting))
		sample(`,reason="deferred"`, float64(stats[rank].Loading+stats[rank].Parked))
	})
	family("vllm:kv_cache_usage_perc", "gauge", func(rank int, sample func(string, float64)) {
		sample("", float64(engines[rank].Cfg.Blocks-stats[rank].FreeBlocks)/float64(engines[rank].Cfg.Blocks))
	})
	one("vllm:prompt_tokens_total", "counter", func(s *engine.Stats) int { return s.PromptTokens })
	family("vllm:prompt_tokens_by_source_total", "counter", func(rank int, sample func(string, float64)) {
		sample(`,source="local_compute"`, float64(stats[rank].ComputedTokens))
		sample(`,source="local_cache_hit"`, float64(stats[rank].LocalHitTokens))
		sample(`,source="external_kv_transfer"`, float64(stats[rank].ExternalTokens))
	})
	b.WriteString("# TYPE vllm:cache_config_info gauge\n")
	for rank, e := range engines {
		caching := "True"
		if e.Cfg.NoPrefixCaching {
			caching = "False"
		}
		fmt.Fprintf(&b, "vllm:cache_config_info{block_size=\"%d\",enable_prefix_caching=%q,engine=\"%d\",kv_cache_size_tokens=\"%d\",num_gpu_blocks=\"%d\"} 1.0\n",
			e.Cfg.BlockSize, caching, rank, e.Cfg.Blocks*e.Cfg.BlockSize, e.Cfg.Blocks)
	}
	// As in vLLM 0.32 and 0.33 (v1/metrics/loggers.py).
	awake := 1
	if o.pausing.state().asleep {
		awake = 0
	}
	fmt.Fprintf(&b, "# TYPE vllm:engine_sleep_state gauge\nvllm:engine_sleep_state{engine=\"0\",sleep_state=\"awake\"} %d.0\n", awake)
	if !f.Is(fault.HiddenStart) {
		fmt.Fprintf(&b, "# TYPE process_start_time_seconds gauge\nprocess_start_time_seconds %s\n",
			strconv.FormatFloat(float64(engines[0].Started.UnixMicro())/1e6, 'f', -1, 64))
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	w.Header().Set("Content-Length", strconv.Itoa(b.Len()))
	if _, err := w.Write([]byte(b.String())); err != nil {
		return wire.ErrConnectionGone
	}
	return nil
}

package ops

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"carryover/upstream/vllmsim/config"
	"carryover/upstream/vllmsim/engine"
	"carryover/upstream/vllmsim/fault"
	"carryover/upstream/vllmsim/wire"
)

// PathMetrics is the path of the metrics.
const PathMetrics = "/metrics"

// family is one metric. Its samples come from the counters of one engine.
type family struct {
	name, kind, help string
	samples          func(m *measured) []sample
}

type sample struct {
	labels string // beyond engine and model_name, with a leading comma
	value  float64
}

// measured is the source of one engine's metrics; they begin at zero with the engine.
type measured struct {
	engine.Stats
	cfg *config.Config
}

func one(value func(*measured) int) func(*measured) []sample {
	return func(m *measured) []sample { return []sample{{value: float64(value(m))}} }
}

func labelled(label string, values func(*measured) []labelValue) func(*measured) []sample {
	return func(m *measured) []sample {
		var list []sample
		for _, v := range values(m) {
			list = append(list, sample{labels: fmt.Sprintf(",%s=%q", label, v.label), value: float64(v.value)})
		}
		return list
	}
}

type labelValue struct {
	label string
	value int
}

// serveMetrics writes the Prometheus text of testdata/exchanges 19 and further metrics that routers read. Of 0.32's metrics it has
// those about KV.
func (o *Endpoints) serveMetrics(w http.ResponseWriter, f *fault.Active) error {
	var b strings.Builder
	engines := o.engines()
	for _, f := range families() {
		fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s %s\n", f.name, f.help, f.name, f.kind)
		for rank, e := range engines {
			m := &measured{Stats: e.Snapshot(), cfg: &e.Cfg}
			labels := fmt.Sprintf("engine=\"%d\",model_name=%q", rank, o.config().Model)
			for _, s := range f.samples(m) {
				writeSample(&b, f, labels+s.labels, s.value)
			}
		}
	}
	for rank, e := range engines {
		if rank == 0 {
			b.WriteString("# HELP vllm:cache_config_info Information of the LLMEngine CacheConfig\n# TYPE vllm:cache_config_info gauge\n")
		}
		fmt.Fprintf(&b, "vllm:cache_config_info{%s} 1.0\n", cacheConfigLabels(&e.Cfg, rank))
	}
	if !o.config().HideStart && !f.Is(fault.HiddenStart) {
		started := engines[0].Started
		fmt.Fprintf(&b, "# HELP process_start_time_seconds Start time of the process since unix epoch in seconds.\n"+
			"# TYPE process_start_time_seconds gauge\nprocess_start_time_seconds %s\n",
			strconv.FormatFloat(float64(started.UnixMicro())/1e6, 'f', -1, 64))
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	w.Header().Set("Content-Length", strconv.Itoa(b.Len()))
	if _, err := w.Write([]byte(b.String())); err != nil {
		return wire.ErrConnectionGone
	}
	return nil
}

// writeSample writes a value. For a histogram it models only the count: each observation adds one to the sum too.
func writeSample(b *strings.Builder, f family, labels string, value float64) {
	if f.kind != "histogram" {
		fmt.Fprintf(b, "%s{%s} %s\n", f.name, labels, wire.PythonFloat(value))
		return
	}
	fmt.Fprintf(b, "%s_bucket{%s,le=\"+Inf\"} %s\n", f.name, labels, wire.PythonFloat(value))
	fmt.Fprintf(b, "%s_count{%s} %s\n", f.name, labels, wire.PythonFloat(value))
	fmt.Fprintf(b, "%s_sum{%s} %s\n", f.name, labels, wire.PythonFloat(value))
}

func pythonBool(v bool) string {
	if v {
		return "True"
	}
	return "False"
}

func (m *measured) waiting() int  { return m.Waiting + m.deferred() }
func (m *measured) deferred() int { return m.Loading + m.Parked }
func (m *measured) running() int  { return m.Running - m.waiting() }

func (m *measured) sources() []labelValue {
	return []labelValue{
		{"local_compute", m.ComputedTokens}, {"local_cache_hit", m.LocalHitTokens}, {"external_kv_transfer", m.ExternalTokens},
	}
}

func (m *measured) tiers() []labelValue {
	return []labelValue{
		{"device", m.LocalHitTokens}, {"host", 0}, {"p2p", m.ExternalTokens}, {"disk", 0}, {"external_unspecified", 0},
	}
}

func (m *measured) usage() []sample {
	used := m.cfg.Blocks - m.FreeBlocks
	return []sample{{value: float64(used) / float64(m.cfg.Blocks)}}
}

func families() []family {
	loads := one(func(m *measured) int { return m.Loads })
	return []family{
		{"vllm:nixl_xfer_time_seconds", "histogram", "Histogram of transfer duration for NIXL KV Cache transfers.", loads},
		{"vllm:nixl_post_time_seconds", "histogram", "Histogram of transfer post time for NIXL KV Cache transfers.", loads},
		{"vllm:nixl_bytes_transferred", "histogram", "Histogram of bytes transferred per NIXL KV Cache transfers.", loads},
		{"vllm:nixl_num_descriptors", "histogram", "Histogram of number of descriptors per NIXL  KV Cache transfers.", loads},
		{"vllm:nixl_num_failed_transfers_total", "counter",
			"Number of failed NIXL KV Cache transfers, including handshake and notification failures. NOTE: KV expiry is tracked separately in vllm:nixl_num_kv_expired_reqs.",
			one(func(m *measured) int { return m.LoadFailures - m.DeclinedReads + m.FailedNotices })},
		{"vllm:nixl_num_failed_notifications_total", "counter",
			"Number of failed NIXL KV Cache notifications. Retained for compatibility; these failures are also included in vllm:nixl_num_failed_transfers.",
			one(func(m *measured) int { return m.FailedNotices })},
		{"vllm:nixl_num_kv_expired_reqs_total", "counter",
			"Number of requests that had their KV expire. NOTE: This metric is tracked on the P instance.",
			one(func(m *measured) int { return m.LeasesExpired + m.TTLExpired + m.DeclinedReads })},
		{"vllm:nixl_num_notifications_after_expiry_total", "counter",
			"Number of completion notifications for requests that were no longer tracked, usually because their KV lease expired. The KV blocks may have been reused before the transfer finished. Counted per notification (one per remote rank), not per request.",
			one(func(m *measured) int { return m.LateNotifications })},
		{"vllm:num_requests_running", "gauge", "Number of requests in model execution batches.", one((*measured).running)},
		{"vllm:num_requests_waiting", "gauge", "Number of requests waiting to be processed.", one((*measured).waiting)},
		{"vllm:num_requests_waiting_by_reason", "gauge",
			"Number of waiting requests by reason. Reason labels: 'capacity' = waiting for scheduling capacity; 'deferred' = deferred by transient constraints (LoRA budget, KV transfer, blocked status). Sum of all reasons equals vllm:num_requests_waiting.",
			labelled("reason", func(m *measured) []labelValue {
				return []labelValue{{"capacity", m.Waiting}, {"deferred", m.deferred()}}
			})},
		{"vllm:num_requests_kv_fetch_by_stage", "gauge",
			"Number of waiting requests by async KV load stage. Stage labels: 'waiting_to_start' = needs an async KV load that has not started; 'in_progress' = load started and not yet reported finished; 'completed_waiting' = load finished, request not running yet.",
			labelled("stage", func(m *measured) []labelValue {
				return []labelValue{{"waiting_to_start", 0}, {"in_progress", m.deferred()}, {"completed_waiting", 0}}
			})},
		{"vllm:kv_cache_usage_perc", "gauge", "KV-cache usage. 1 means 100 percent usage.", (*measured).usage},
		{"vllm:prefix_cache_queries_total", "counter", "Prefix cache queries, in terms of number of queried tokens.",
			one(func(m *measured) int { return m.PromptTokens })},
		{"vllm:prefix_cache_hits_total", "counter", "Prefix cache hits, in terms of number of cached tokens.",
			one(func(m *measured) int { return m.LocalHitTokens })},
		{"vllm:external_prefix_cache_queries_total", "counter",
			"External prefix cache queries from KV connector cross-instance cache sharing, in terms of number of queried tokens.",
			one(func(m *measured) int { return m.PromptTokens - m.LocalHitTokens })},
		{"vllm:external_prefix_cache_hits_total", "counter",
			"External prefix cache hits from KV connector cross-instance cache sharing, in terms of number of cached tokens.",
			one(func(m *measured) int { return m.ExternalTokens })},
		{"vllm:prompt_tokens_total", "counter", "Number of prefill tokens processed.",
			one(func(m *measured) int { return m.PromptTokens })},
		{"vllm:prompt_tokens_by_source_total", "counter", "Number of prompt tokens by source.",
			labelled("source", (*measured).sources)},
		{"vllm:prompt_tokens_cached_total", "counter", "Number of cached prompt tokens (local + external).",
			one(func(m *measured) int { return m.LocalHitTokens + m.ExternalTokens })},
		{"vllm:prompt_tokens_cached_by_source_total", "counter",
			"Prefix-cache hit tokens by the cache tier that supplied them: device (local HBM), host (offloaded to DRAM), disk, p2p (transferred from another vLLM instance) or external_unspecified. Counted at admission; sums to vllm:prefix_cache_hits + vllm:external_prefix_cache_hits.",
			labelled("source", (*measured).tiers)},
		{"vllm:request_prompt_tokens", "histogram", "Number of prefill tokens processed.",
			one(func(m *measured) int { return m.Requests })},
		{"vllm:generation_tokens_total", "counter", "Number of generation tokens processed.",
			one(func(m *measured) int { return m.GeneratedTokens })},
		{"vllm:num_preemptions_total", "counter", "Cumulative number of preemption from the engine.",
			one(func(m *measured) int { return m.Preemptions })},
		{"vllm:request_success_total", "counter", "Count of successfully processed requests.",
			labelled("finished_reason", func(m *measured) []labelValue {
				return []labelValue{{"stop", m.Finished - m.Capped}, {"length", m.Capped}, {"abort", m.Aborts}, {"error", m.Failures}}
			})},
	}
}

// cacheConfigLabels returns the labels of vllm:cache_config_info: the configuration that recording 19 shows, with the
// sizes of this engine.
func cacheConfigLabels(cfg *config.Config, rank int) string {
	size, tokens := strconv.Itoa(cfg.BlockSize), cfg.Blocks*cfg.BlockSize
	pairs := [...][2]string{
		{"_block_size_resolved", "True"}, {"block_size", size}, {"cache_dtype", "auto"}, {"cache_hit_alignment_tokens", "None"},
		{"effective_attention_block_size", size}, {"enable_mamba_shared_prefix_checkpoint", "False"},
		{"enable_prefix_caching", pythonBool(!cfg.NoPrefixCaching)}, {"engine", strconv.Itoa(rank)}, {"gpu_memory_utilization", "0.92"},
		{"hash_block_size", "None"}, {"is_attention_free", "False"}, {"kv_cache_dtype_skip_layers", "[]"},
		{"kv_cache_layout", "None"}, {"kv_cache_max_concurrency", wire.PythonFloat(float64(tokens) / float64(cfg.MaxModelLen))},
		{"kv_cache_memory_bytes", strconv.Itoa(tokens * 4096)}, {"kv_cache_size_tokens", strconv.Itoa(tokens)},
		{"kv_offloading_backend", "native"}, {"kv_offloading_size", "None"}, {"kv_sharing_fast_prefill", "False"},
		{"mamba_block_size", "None"}, {"mamba_cache_dtype", "auto"}, {"mamba_cache_mode", "none"},
		{"mamba_page_size_padded", "None"}, {"mamba_ssm_cache_dtype", "float32"}, {"num_cpu_blocks", "None"},
		{"num_gpu_blocks", strconv.Itoa(cfg.Blocks)}, {"num_gpu_blocks_override", "None"},
		{"prefix_cache_retention_interval", "0"}, {"prefix_caching_hash_algo", "sha256"}, {"prefix_match_unit", "None"},
		{"replayssm_buffer_len", "16"}, {"skip_page_size_padded", "None"}, {"sliding_window", "None"},
		{"swa_bounded_replay", "True"}, {"use_kda_recoverssm", "False"}, {"use_replayssm", "False"},
		{"user_specified_block_size", "True"},
	}
	labels := make([]string, len(pairs))
	for i, p := range pairs {
		labels[i] = fmt.Sprintf("%s=%q", p[0], p[1])
	}
	return strings.Join(labels, ",")
}

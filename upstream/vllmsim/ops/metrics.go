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
	name, kind string
	samples    func(m *measured) []sample
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

// serveMetrics writes in Prometheus' text those of vLLM's metrics that routers and tests read, spelled as in testdata/exchanges 19.
func (o *Endpoints) serveMetrics(w http.ResponseWriter, f *fault.Active) error {
	var b strings.Builder
	engines := o.engines()
	for _, f := range families() {
		fmt.Fprintf(&b, "# TYPE %s %s\n", f.name, f.kind)
		for rank, e := range engines {
			for _, s := range f.samples(&measured{Stats: e.Snapshot(), cfg: &e.Cfg}) {
				fmt.Fprintf(&b, "%s{engine=\"%d\",model_name=%q%s} %s\n", f.name, rank, o.config().Model, s.labels, wire.PythonFloat(s.value))
			}
		}
	}
	b.WriteString("# TYPE vllm:cache_config_info gauge\n")
	for rank, e := range engines {
		caching := "True"
		if e.Cfg.NoPrefixCaching {
			caching = "False"
		}
		fmt.Fprintf(&b, "vllm:cache_config_info{block_size=\"%d\",enable_prefix_caching=%q,engine=\"%d\",kv_cache_size_tokens=\"%d\",num_gpu_blocks=\"%d\"} 1.0\n",
			e.Cfg.BlockSize, caching, rank, e.Cfg.Blocks*e.Cfg.BlockSize, e.Cfg.Blocks)
	}
	// As vLLM 0.32 and 0.33 tell it (v1/metrics/loggers.py).
	fmt.Fprintf(&b, "# TYPE vllm:engine_sleep_state gauge\nvllm:engine_sleep_state{engine=\"0\",sleep_state=\"awake\"} %d.0\n", o.pausing.awake())
	if !o.config().HideStart && !f.Is(fault.HiddenStart) {
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

func (m *measured) deferred() int { return m.Loading + m.Parked }

func families() []family {
	return []family{
		{"vllm:num_requests_running", "gauge", one(func(m *measured) int { return m.Running - m.Waiting - m.deferred() })},
		{"vllm:num_requests_waiting", "gauge", one(func(m *measured) int { return m.Waiting + m.deferred() })},
		{"vllm:num_requests_waiting_by_reason", "gauge", func(m *measured) []sample {
			return []sample{{`,reason="capacity"`, float64(m.Waiting)}, {`,reason="deferred"`, float64(m.deferred())}}
		}},
		{"vllm:kv_cache_usage_perc", "gauge", func(m *measured) []sample {
			return []sample{{value: float64(m.cfg.Blocks-m.FreeBlocks) / float64(m.cfg.Blocks)}}
		}},
		{"vllm:prompt_tokens_total", "counter", one(func(m *measured) int { return m.PromptTokens })},
		{"vllm:prompt_tokens_by_source_total", "counter", func(m *measured) []sample {
			return []sample{
				{`,source="local_compute"`, float64(m.ComputedTokens)}, {`,source="local_cache_hit"`, float64(m.LocalHitTokens)},
				{`,source="external_kv_transfer"`, float64(m.ExternalTokens)},
			}
		}},
	}
}

package fleet

import (
	"bytes"
	"math"
	"strconv"
)

// use is what /metrics tells of an engine's load: the requests that it runs, and those that wait for a place; the share of its
// KV cache that is in use, 0 to 1, pinned blocks included; how many tokens the cache holds.
type use struct {
	running, waiting int
	usage            float64
	kvTokens         int
}

// The gauges of vLLM that tell it (v1/metrics/loggers.py). The label engine is the data-parallel rank.
const (
	runningMetric = "vllm:num_requests_running"
	waitingMetric = "vllm:num_requests_waiting"
	usageMetric   = "vllm:kv_cache_usage_perc"
	engineLabel   = "engine"
)

// Bounds of what is believed: far above any engine, and far below what sums could overflow with.
const (
	maxTold   = 1 << 24
	maxTokens = 1 << 40
)

// metricUse gathers it: requests and tokens of several engines are summed, of usage the highest counts.
type metricUse struct {
	rank  string // counts alone, "" counts all
	total use
}

func (m *metricUse) line(line []byte) {
	if !bytes.HasPrefix(line, []byte("vllm:")) {
		return
	}
	if n, found := m.gauge(line, runningMetric); found {
		m.total.running = min(m.total.running+int(min(n, maxTold)), maxTold)
	} else if n, found = m.gauge(line, waitingMetric); found {
		m.total.waiting = min(m.total.waiting+int(min(n, maxTold)), maxTold)
	} else if n, found = m.gauge(line, usageMetric); found {
		m.total.usage = max(m.total.usage, min(n, 1))
	}
}

// gauge reads a sample of a gauge that is not negative.
func (m *metricUse) gauge(line []byte, name string) (n float64, found bool) {
	rest, found := cutMetric(line, name)
	if !found {
		return 0, false
	}
	engine := ""
	value, ok := sample(rest, func(label, text string) {
		if label == engineLabel {
			engine = text
		}
	})
	n, err := strconv.ParseFloat(value, 64)
	return n, ok && err == nil && n >= 0 && !math.IsInf(n, 0) && m.counts(engine)
}

func (m *metricUse) counts(engine string) bool { return m.rank == "" || m.rank == engine }

// cacheLabels are those of vllm:cache_config_info that matter here. Numbers of tokens were added to it later than numbers of
// blocks (both in 0.32).
type cacheLabels struct{ engine, blockSize, blocks, tokens string }

func (c *cacheLabels) set(name, text string) {
	switch name {
	case engineLabel:
		c.engine = text
	case "block_size":
		c.blockSize = text
	case "num_gpu_blocks":
		c.blocks = text
	case "kv_cache_size_tokens":
		c.tokens = text
	}
}

func (m *metricUse) cache(c cacheLabels) {
	if !m.counts(c.engine) {
		return
	}
	tokens, ok := count(c.tokens)
	if !ok {
		size, sized := count(c.blockSize)
		blocks, counted := count(c.blocks)
		if !sized || !counted || size > maxBlockSize {
			return
		}
		tokens = size * blocks
	}
	m.total.kvTokens = min(m.total.kvTokens+tokens, maxTokens)
}

// count reads a number of things, at least one.
func count(text string) (n int, ok bool) {
	n, err := strconv.Atoi(text)
	return n, err == nil && n > 0 && n <= maxTokens
}

package fleet

import (
	"bytes"
	"math"
	"strconv"
)

// use is what /metrics tells of an engine's load: the requests that it runs, and those that wait for a place; how many of these wait for
// room, and not for KV which they read or the like, all where reasons are not told; the share of its
// KV cache that is in use, 0 to 1, pinned blocks included; how many tokens the cache holds.
type use struct {
	running, waiting, short int
	usage                   float64
	kvTokens                int
	reasons                 bool // for which requests wait are told
}

// wanting is how many requests wait for room. Where reasons are not told, none does that has half of the cache.
func (u use) wanting() int {
	if !u.reasons && u.usage < 0.5 {
		return 0
	}
	return u.short
}

// The gauges of vLLM that tell it (v1/metrics/loggers.py). The label engine is the data-parallel rank.
const (
	runningMetric = "vllm:num_requests_running"
	waitingMetric = "vllm:num_requests_waiting"
	reasonMetric  = "vllm:num_requests_waiting_by_reason" // measured on vLLM 0.32
	usageMetric   = "vllm:kv_cache_usage_perc"
	engineLabel   = "engine"
	reasonLabel   = "reason"
	forRoom       = "capacity" // a reason; the other is "deferred"
)

// Bounds of what is believed: far above any engine, and far below what sums could overflow with.
const (
	maxTold   = 1 << 24
	maxTokens = 1 << 40
)

// metricUse gathers it: requests and tokens of several engines are summed, of usage the highest counts.
type metricUse struct {
	rank    string // counts alone, "" counts all
	total   use
	reasons bool // are told
}

// told returns what was gathered.
func (m *metricUse) told() use {
	told := m.total
	told.reasons = m.reasons
	if !m.reasons {
		told.short = told.waiting
	}
	return told
}

func (m *metricUse) line(line []byte) {
	if !bytes.HasPrefix(line, []byte("vllm:")) {
		return
	}
	if n, _, found := m.gauge(line, runningMetric); found {
		add(&m.total.running, n)
	} else if n, _, found = m.gauge(line, waitingMetric); found {
		add(&m.total.waiting, n)
	} else if n, reason, found := m.gauge(line, reasonMetric); found {
		m.reasons = true
		if reason == forRoom {
			add(&m.total.short, n)
		}
	} else if n, _, found = m.gauge(line, usageMetric); found {
		m.total.usage = max(m.total.usage, min(n, 1))
	}
}

// add adds a number of requests.
func add(sum *int, n float64) { *sum = min(*sum+int(min(n, maxTold)), maxTold) }

// gauge reads a sample of a gauge that is not negative, and its reason, "" without one.
func (m *metricUse) gauge(line []byte, name string) (n float64, reason string, found bool) {
	rest, found := cutMetric(line, name)
	if !found {
		return 0, "", false
	}
	engine := ""
	value, ok := sample(rest, func(label, text string) {
		switch label {
		case engineLabel:
			engine = text
		case reasonLabel:
			reason = text
		}
	})
	n, err := strconv.ParseFloat(value, 64)
	return n, reason, ok && err == nil && n >= 0 && !math.IsInf(n, 0) && m.counts(engine)
}

func (m *metricUse) counts(engine string) bool { return m.rank == "" || m.rank == engine }

// cacheLabels are those of vllm:cache_config_info that matter here. Numbers of tokens were added to it later than numbers of
// blocks (both in 0.32).
type cacheLabels struct{ engine, blockSize, blocks, tokens, prefixes string }

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
	case "enable_prefix_caching":
		c.prefixes = text
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

package facts

import (
	"bytes"
	"math"
	"strconv"
)

// Use is an engine's load by its /metrics. Running and Waiting count requests. Short counts the waiting requests that
// wait for cache space; the others wait for KV that they read, for example; without reasons, Short is all of them.
// Usage is the share of the KV cache in use, 0 to 1, pinned blocks included. KVTokens is how many tokens the cache
// holds. Generated is how many tokens it has generated.
type Use struct {
	Running, Waiting, Short int
	Usage                   float64
	KVTokens                int
	Generated               float64
	reasons                 bool // the engine tells why requests wait
}

// Wanting returns how many requests wait for cache space. If the engine tells no reasons and half of its cache is
// free, it returns 0.
func (u Use) Wanting() int {
	if !u.reasons && u.Usage < 0.5 {
		return 0
	}
	return u.Short
}

// vLLM's gauges for the load (v1/metrics/loggers.py). The label engine is the data-parallel rank.
const (
	runningMetric   = "vllm:num_requests_running"
	waitingMetric   = "vllm:num_requests_waiting"
	reasonMetric    = "vllm:num_requests_waiting_by_reason" // measured on vLLM 0.32
	usageMetric     = "vllm:kv_cache_usage_perc"
	generatedMetric = "vllm:generation_tokens_total" // of the engine core: an API server whose core hangs repeats it
	sleepMetric     = "vllm:engine_sleep_state"      // 0.32, 0.33: 0 behind a sleep of any level, 1 once all is awake
	engineLabel     = "engine"
	reasonLabel     = "reason"
	stateLabel      = "sleep_state"
	forRoom         = "capacity" // the reason for cache space; the other one is "deferred"
)

// Upper bounds of believable values: far above any engine, and far below an overflow of their sums.
const (
	MaxTold   = 1 << 24
	maxTokens = 1 << 40
)

// metricUse collects the load: it sums requests and tokens of several engines, and keeps the highest usage.
type metricUse struct {
	rank    string // only this rank counts; "" counts all
	total   Use
	reasons bool // samples with reasons were seen
	asleep  bool // an engine is not awake
}

// told returns the collected load.
func (m *metricUse) told() Use {
	told := m.total
	told.reasons = m.reasons
	if !m.reasons {
		told.Short = told.Waiting
	}
	return told
}

func (m *metricUse) line(line []byte) {
	if !bytes.HasPrefix(line, []byte("vllm:")) {
		return
	}
	if n, _, found := m.gauge(line, runningMetric); found {
		add(&m.total.Running, n)
	} else if n, _, found = m.gauge(line, waitingMetric); found {
		add(&m.total.Waiting, n)
	} else if n, reason, found := m.gauge(line, reasonMetric); found {
		m.reasons = true
		if reason == forRoom {
			add(&m.total.Short, n)
		}
	} else if n, _, found = m.gauge(line, usageMetric); found {
		m.total.Usage = max(m.total.Usage, min(n, 1))
	} else if n, _, found = m.gauge(line, generatedMetric); found {
		m.total.Generated += n
	} else if n, state, found := m.gauge(line, sleepMetric); found && state == "awake" && n == 0 {
		m.asleep = true
	}
}

// add adds a number of requests to sum.
func add(sum *int, n float64) { *sum = min(*sum+int(min(n, MaxTold)), MaxTold) }

// gauge parses a sample of a gauge. reason is its label for a reason or state, "" without one. found is false for other metrics, negative
// values, and other ranks.
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
		case reasonLabel, stateLabel:
			reason = text
		}
	})
	n, err := strconv.ParseFloat(value, 64)
	return n, reason, ok && err == nil && n >= 0 && !math.IsInf(n, 0) && m.counts(engine)
}

func (m *metricUse) counts(engine string) bool { return m.rank == "" || m.rank == engine }

// cacheLabels are the labels of vllm:cache_config_info that are used here. Engines name the number of tokens or only
// that of blocks; both are in vLLM 0.32.
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
	m.total.KVTokens = min(m.total.KVTokens+tokens, maxTokens)
}

// count parses a positive number.
func count(text string) (n int, ok bool) {
	n, err := strconv.Atoi(text)
	return n, err == nil && n > 0 && n <= maxTokens
}

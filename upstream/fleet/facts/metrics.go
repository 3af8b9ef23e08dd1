package facts

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

// Metrics are what /metrics of an instance tells. Tickets depend on the incarnation and the block size. The rest only
// guides picks and hand-backs, so a missing or meaningless value is zero.
type Metrics struct {
	Incarnation string // process_start_time_seconds as written, "" if missing
	Asleep      bool   // an engine sleeps (/sleep): its KV is lost when it wakes, and its weights may differ
	BlockSize   int    // tokens per KV block, 0 if missing or different between engines
	Caching     Finding
	Use         Use
}

// MaxMetrics bounds a Prometheus text. vLLM 0.32 writes 64 kB for one engine.
const MaxMetrics = 16 << 20

// Use is an engine's load. Running and Waiting count requests. Short counts those that wait for cache space, not, for
// example, for KV that they read; if the engine tells no reasons, Short is Waiting. Usage is the used share of the KV
// cache, 0 to 1, pinned blocks included. KVTokens is the size of the cache in tokens. Generated counts generated
// tokens.
type Use struct {
	Running, Waiting, Short int
	Usage                   float64
	KVTokens                int
	Generated               float64
	reasons                 bool // the engine tells why requests wait
}

// Wanting returns how many requests wait for cache space: 0 if the engine tells no reasons and half of its cache is
// free.
func (u Use) Wanting() int {
	if !u.reasons && u.Usage < 0.5 {
		return 0
	}
	return u.Short
}

// ReadMetrics reads a Prometheus text (exposition format 0.0.4). It ignores unknown lines; a text that is cut off is an
// error. With a rank, load and cache are that data-parallel rank's; "" sums over all.
func ReadMetrics(text []byte, rank string) (Metrics, error) {
	if len(text) > 0 && text[len(text)-1] != '\n' {
		return Metrics{}, fmt.Errorf("read metrics: %w", io.ErrUnexpectedEOF)
	}
	m := samples{rank: rank, started: map[string]bool{}, sizes: map[string]bool{}}
	for line := range bytes.Lines(text) {
		m.line(bytes.TrimRight(line, "\r\n"))
	}
	told, started, size := m.told, only(m.started), only(m.sizes)
	seconds, err := strconv.ParseFloat(started, 64)
	if err == nil && seconds > 0 && !math.IsInf(seconds, 0) && len(started) <= 32 {
		told.Incarnation = started
	}
	if n, ok := count(size); ok && n <= maxBlockSize && strconv.Itoa(n) == size {
		told.BlockSize = n
	}
	if !told.Use.reasons {
		told.Use.Short = told.Use.Waiting
	}
	return told, nil
}

func only(values map[string]bool) (value string) {
	for value = range values {
		if len(values) > 1 {
			return ""
		}
	}
	return value
}

// Bounds of loads are far above any engine, and far below an overflow of their sums.
const (
	maxBlockSize = 1 << 16 // more than any block size that vLLM accepts
	MaxTold      = 1 << 24
	maxTokens    = 1 << 40
)

// All but the first are vLLM's (v1/metrics/loggers.py); their label engine is the data-parallel rank.
const (
	startMetric     = "process_start_time_seconds"
	cacheMetric     = "vllm:cache_config_info"
	runningMetric   = "vllm:num_requests_running"
	waitingMetric   = "vllm:num_requests_waiting"
	reasonMetric    = "vllm:num_requests_waiting_by_reason" // measured on vLLM 0.32
	usageMetric     = "vllm:kv_cache_usage_perc"
	generatedMetric = "vllm:generation_tokens_total" // by the engine core: an API server whose core hangs repeats it
	sleepMetric     = "vllm:engine_sleep_state"      // 0.32, 0.33: 0 after a sleep of any level, 1 when all is awake
	forRoom         = "capacity"                     // the reason for cache space; the other one is "deferred"
)

// samples collects Metrics line by line. Several samples of the start or the block size, as of several engines or processes, must agree.
// Requests and tokens of several engines are summed; the highest usage counts.
type samples struct {
	told           Metrics
	rank           string          // only this rank counts; "" counts all
	started, sizes map[string]bool // values, "" for a meaningless or missing one
}

func (s *samples) line(line []byte) {
	at := bytes.IndexAny(line, " \t{")
	if at < 0 {
		return
	}
	rest, use := line[at:], &s.told.Use
	switch string(line[:at]) {
	case startMetric:
		value, _ := sample(string(rest))
		s.started[value] = true
	case cacheMetric:
		_, l := sample(string(rest))
		s.sizes[l["block_size"]] = true
		if s.counts(l) {
			s.cache(l)
		}
	case runningMetric:
		n, _, _ := s.gauge(rest)
		add(&use.Running, n)
	case waitingMetric:
		n, _, _ := s.gauge(rest)
		add(&use.Waiting, n)
	case reasonMetric:
		n, l, found := s.gauge(rest)
		if use.reasons = use.reasons || found; l["reason"] == forRoom {
			add(&use.Short, n)
		}
	case usageMetric:
		n, _, _ := s.gauge(rest)
		use.Usage = max(use.Usage, min(n, 1))
	case generatedMetric:
		n, _, _ := s.gauge(rest)
		use.Generated += n
	case sleepMetric:
		n, l, found := s.gauge(rest)
		s.told.Asleep = s.told.Asleep || found && n == 0 && l["sleep_state"] == "awake"
	}
}

// cache reads the size of an engine's cache and whether prefix caching is on (enable_prefix_caching of vLLM's CacheConfig). Engines tell
// the number of tokens or only of blocks; both occur in vLLM 0.32.
func (s *samples) cache(l map[string]string) {
	switch {
	case l["enable_prefix_caching"] == "False":
		s.told.Caching = No
	case l["enable_prefix_caching"] == "True" && s.told.Caching == Unknown:
		s.told.Caching = Yes
	}
	tokens, ok := count(l["kv_cache_size_tokens"])
	if !ok {
		size, sized := count(l["block_size"])
		blocks, counted := count(l["num_gpu_blocks"])
		if !sized || !counted || size > maxBlockSize {
			return
		}
		tokens = size * blocks
	}
	s.told.Use.KVTokens = min(s.told.Use.KVTokens+tokens, maxTokens)
}

func (s *samples) counts(l map[string]string) bool { return s.rank == "" || s.rank == l["engine"] }

// gauge returns 0 if the value is negative, meaningless or another rank's.
func (s *samples) gauge(rest []byte) (n float64, l map[string]string, found bool) {
	value, l := sample(string(rest))
	n, err := strconv.ParseFloat(value, 64)
	if err != nil || !(n >= 0) || math.IsInf(n, 0) || !s.counts(l) {
		return 0, l, false
	}
	return n, l, true
}

func add(sum *int, n float64) { *sum = min(*sum+int(min(n, MaxTold)), MaxTold) }

func count(text string) (n int, ok bool) {
	n, err := strconv.Atoi(text)
	return n, err == nil && n > 0 && n <= maxTokens
}

// sample parses the rest of a sample line: labels in braces, the value, an optional time stamp. It returns nothing if the syntax is wrong.
// Escapes in labels stay, because no label that is used has any.
func sample(rest string) (value string, l map[string]string) {
	l = map[string]string{}
	rest = strings.TrimLeft(rest, " \t")
	if inside, found := strings.CutPrefix(rest, "{"); found {
		rest = strings.TrimLeft(inside, " \t")
		for !strings.HasPrefix(rest, "}") {
			name, text, _ := strings.Cut(rest, "=")
			text = strings.TrimLeft(text, " \t")
			quoted, err := strconv.QuotedPrefix(text)
			if err != nil || quoted[0] != '"' {
				return "", nil
			}
			l[strings.TrimSpace(name)] = quoted[1 : len(quoted)-1]
			text = strings.TrimLeft(text[len(quoted):], " \t")
			if rest, found = strings.CutPrefix(text, ","); !found && !strings.HasPrefix(text, "}") {
				return "", nil
			}
			rest = strings.TrimLeft(rest, " \t")
		}
		rest = rest[1:]
	}
	fields := strings.Fields(rest)
	if len(fields) < 1 || len(fields) > 2 {
		return "", nil
	}
	return fields[0], l
}

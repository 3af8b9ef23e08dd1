package facts

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"

	"carryover/upstream"
)

// Metrics are what /metrics of an instance tells about its incarnation and its load. Tickets depend on the incarnation
// and the block size. The rest only guides picks and hand-backs, so a value that is missing or makes no sense is zero.
type Metrics struct {
	Incarnation string // process_start_time_seconds as it was written, "" if it is missing
	Asleep      bool   // an engine sleeps (/sleep): what it held is gone when it wakes, and its weights may be others
	BlockSize   int    // tokens of a KV block, 0 if it is missing or differs between engines
	Caching     Finding
	Use         Use
}

// Bounds of a Prometheus text. vLLM 0.32 writes 64 kB for one engine; the longest line that is read here has 1.1 kB.
const (
	MaxMetrics    = 16 << 20
	maxMetricLine = 64 << 10
)

// maxBlockSize is more than any block size that vLLM accepts.
const maxBlockSize = 1 << 16

// metricFacts collects facts from the lines of a Prometheus text. Several samples of a metric, as of several engines
// or processes, must agree.
type metricFacts struct {
	started, size               string
	manyIncarnations, manySizes bool
	caching                     Finding // No if an engine has prefix caching off
	use                         metricUse
}

// ReadMetrics reads a Prometheus text (exposition format 0.0.4) to its end. It ignores lines that it does not know; a
// text that breaks off or is too long is an error. With a rank, load and cache are those of that data-parallel rank;
// "" sums over all.
func ReadMetrics(r io.Reader, rank string) (Metrics, error) {
	m := metricFacts{use: metricUse{rank: rank}}
	left := int64(MaxMetrics)
	lines := bufio.NewReaderSize(io.LimitReader(r, left+1), maxMetricLine)
	inside := false // the slice continues a line that was longer than the buffer
	for {
		line, err := lines.ReadSlice('\n')
		if left -= int64(len(line)); left < 0 {
			return Metrics{}, fmt.Errorf("read metrics: %w", upstream.ErrAnswerTooLarge)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			if !inside {
				m.tooLong(line)
			}
			inside = true
			continue
		case err != nil && !errors.Is(err, io.EOF):
			return Metrics{}, fmt.Errorf("read metrics: %w", err)
		case err != nil && (len(line) > 0 || inside):
			// The last line must end with a line break, or the text was cut off.
			return Metrics{}, fmt.Errorf("read metrics: %w", io.ErrUnexpectedEOF)
		case err != nil:
			return m.facts(), nil
		case !inside:
			m.line(bytes.TrimRight(line, "\r\n"))
		}
		inside = false
	}
}

const (
	startMetric = "process_start_time_seconds"
	cacheMetric = "vllm:cache_config_info"
)

// tooLong treats a sample whose labels do not fit the buffer as one that disagrees.
func (m *metricFacts) tooLong(line []byte) {
	m.manyIncarnations = m.manyIncarnations || bytes.HasPrefix(line, []byte(startMetric))
	m.manySizes = m.manySizes || bytes.HasPrefix(line, []byte(cacheMetric))
}

func (m *metricFacts) line(line []byte) {
	if rest, found := cutMetric(line, startMetric); found {
		value, ok := sample(rest, ignoreLabel)
		m.manyIncarnations = m.manyIncarnations || !ok || m.started != "" && m.started != value
		m.started = value
	}
	if rest, found := cutMetric(line, cacheMetric); found {
		cache := cacheLabels{blockSize: "?"}
		_, ok := sample(rest, cache.set)
		m.manySizes = m.manySizes || !ok || m.size != "" && m.size != cache.blockSize
		m.size = cache.blockSize
		if ok {
			m.use.cache(cache)
			m.caches(cache)
		}
	}
	m.use.line(line)
}

func (m *metricFacts) facts() (f Metrics) {
	seconds, err := strconv.ParseFloat(m.started, 64)
	if err == nil && seconds > 0 && !math.IsInf(seconds, 0) && !m.manyIncarnations && len(m.started) <= 32 {
		f.Incarnation = m.started
	}
	size, err := strconv.Atoi(m.size)
	if err == nil && size > 0 && size <= maxBlockSize && !m.manySizes && strconv.Itoa(size) == m.size {
		f.BlockSize = size
	}
	f.Caching, f.Asleep, f.Use = m.caching, m.use.asleep, m.use.told()
	return f
}

// caches records whether an engine has prefix caching on (enable_prefix_caching of vLLM's CacheConfig).
func (m *metricFacts) caches(c cacheLabels) {
	switch {
	case !m.use.counts(c.engine):
	case c.prefixes == "False":
		m.caching = No
	case c.prefixes == "True" && m.caching == Unknown:
		m.caching = Yes
	}
}

// cutMetric returns the rest of a sample line after the metric's name.
func cutMetric(line []byte, name string) (rest []byte, found bool) {
	rest, found = bytes.CutPrefix(line, []byte(name))
	return rest, found && len(rest) > 0 && bytes.IndexByte([]byte(" \t{"), rest[0]) >= 0
}

// sample parses the rest of a sample line: labels in braces, the value, an optional time stamp. It calls set for each
// label.
func sample(rest []byte, set func(name, text string)) (value string, ok bool) {
	rest = bytes.TrimLeft(rest, " \t")
	if bytes.HasPrefix(rest, []byte("{")) {
		rest = bytes.TrimLeft(rest[1:], " \t")
		for !bytes.HasPrefix(rest, []byte("}")) {
			key, text, tail, found := nextLabel(rest)
			if !found {
				return "", false
			}
			set(key, text)
			rest = tail
		}
		rest = rest[1:]
	}
	fields := bytes.Fields(rest)
	if len(fields) < 1 || len(fields) > 2 {
		return "", false
	}
	return string(fields[0]), true
}

func ignoreLabel(string, string) {}

// nextLabel reads name="value" and the comma after it. It leaves escapes in the value as they are: none of the values
// that are used has any.
func nextLabel(rest []byte) (key, value string, tail []byte, ok bool) {
	name, rest, found := bytes.Cut(rest, []byte("="))
	rest = bytes.TrimLeft(rest, " \t")
	if !found || len(rest) == 0 || rest[0] != '"' {
		return "", "", nil, false
	}
	end := 1
	for end < len(rest) && rest[end] != '"' {
		if rest[end] == '\\' {
			end++
		}
		end++
	}
	if end >= len(rest) {
		return "", "", nil, false
	}
	tail = bytes.TrimLeft(rest[end+1:], " \t")
	if len(tail) > 0 && tail[0] == ',' {
		tail = bytes.TrimLeft(tail[1:], " \t")
	} else if len(tail) == 0 || tail[0] != '}' {
		return "", "", nil, false
	}
	return string(bytes.TrimSpace(name)), string(rest[1:end]), tail, true
}

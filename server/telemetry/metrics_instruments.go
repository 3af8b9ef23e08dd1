package telemetry

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// All buckets are in seconds and reach five minutes, because turns may wait for minutes.
//
//nolint:gochecknoglobals // immutable
var (
	longTimes  = []float64{0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160, 300}
	shortTimes = []float64{0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300}
)

// Units are in UCUM. Prometheus omits text in braces from names.
const (
	seconds       = "s"
	turnUnit      = "{turn}"
	tokenUnit     = "{token}"
	ticketUnit    = "{ticket}"
	requestUnit   = "{request}"
	instanceUnit  = "{instance}"
	byteUnit      = "By"
	ratioUnit     = "1"
	dimensionless = "{1}"
)

// instruments measure ended turns. These sums hold: turns and sources, over all labels, count the ended turns; turns with outcome "hit" are
// follow-ups; tickets with result "yes" count the answers that left a ticket; hitTTFT and hitTTFTWithout have the same turns.
type instruments struct {
	turns, sources, prompts, offered, read, confirmed, tickets, choices, retries *counter
	saved                                                                        metric.Float64Counter

	ttft, whole, hitTTFT, hitTTFTWithout *times
	queue, leg, store                    *times

	httpDuration                                *times
	genAIFirst, genAIDuration, genAIPerOutToken *times
	genAIUsage                                  metric.Int64Histogram // its labels are among genAIDuration's
}

type counter struct {
	to metric.Int64Counter
	labels[metric.AddOption]
}

func (c *counter) add(n int, by ...attribute.KeyValue) {
	c.to.Add(context.Background(), int64(n), c.get(by)...)
}

type times struct {
	to metric.Float64Histogram
	labels[metric.RecordOption]
}

func (t *times) record(took time.Duration, by ...attribute.KeyValue) {
	t.to.Record(context.Background(), took.Seconds(), t.get(by)...)
}

// other stands for a value outside a closed set, or beyond the bound of a set.
const other = "other"

// maxLabels bounds the label combinations of one instrument. A fleet of a thousand instances has a thousand for each way in which its legs end.
// Names of pods that come and go stay until the process ends.
const maxLabels = 4096

type labelSet [5]attribute.KeyValue

type labels[Option any] struct {
	mu   sync.RWMutex // guards the rest
	made map[labelSet][]Option
	rest labelSet // stands for all combinations beyond the bound
}

func (l *labels[Option]) get(by []attribute.KeyValue) []Option {
	var key labelSet
	copy(key[:], by)
	l.mu.RLock()
	made, found := l.made[key]
	l.mu.RUnlock()
	if found {
		return made
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, found = l.made[key]; !found && len(l.made) >= maxLabels {
		if l.rest == (labelSet{}) {
			l.rest = key.others()
		}
		key = l.rest
	}
	if made, found = l.made[key]; !found {
		named := slices.DeleteFunc(slices.Clone(key[:]), func(label attribute.KeyValue) bool { return label.Key == "" })
		made = []Option{any(metric.WithAttributeSet(attribute.NewSet(named...))).(Option)}
		l.made[key] = made
	}
	return made
}

func (s labelSet) others() labelSet {
	for i := range s {
		switch s[i].Value.Type() {
		case attribute.STRING:
			s[i].Value = attribute.StringValue(other)
		case attribute.BOOL:
			s[i].Value = attribute.BoolValue(false)
		case attribute.INT64:
			s[i].Value = attribute.IntValue(0)
		}
	}
	return s
}

type maker struct {
	meter metric.Meter
	errs  []error
}

func kept[T any](m *maker) func(T, error) T {
	return func(instrument T, err error) T {
		m.errs = append(m.errs, err)
		return instrument
	}
}

func (m *maker) counter(name, unit, what string) *counter {
	to := kept[metric.Int64Counter](m)(m.meter.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(what)))
	return &counter{to, labels[metric.AddOption]{made: map[labelSet][]metric.AddOption{}}}
}

func (m *maker) times(name, what string, bounds []float64) *times {
	to := kept[metric.Float64Histogram](m)(m.meter.Float64Histogram(name, metric.WithUnit(seconds), metric.WithDescription(what),
		metric.WithExplicitBucketBoundaries(bounds...)))
	return &times{to, labels[metric.RecordOption]{made: map[labelSet][]metric.RecordOption{}}}
}

func newInstruments(meter metric.Meter) (instruments, error) {
	m := &maker{meter: meter}
	i := instruments{
		turns:     m.counter("carryover.turns", turnUnit, "Turns that have ended, by outcome of reuse and the reason for a miss or an empty hit."),
		sources:   m.counter("carryover.turns.id_source", turnUnit, "Turns that have ended, by source of the conversation's id and outcome of reuse."),
		prompts:   m.counter("carryover.prompt.tokens", tokenUnit, "Prompt tokens of turns. In follow-ups, prefill saved carryover_reuse_tokens_read_total of them."),
		offered:   m.counter("carryover.reuse.tokens.offered", tokenUnit, "Tokens of tickets that prefill was told to read; with proof engine, handed-back tokens that it found."),
		read:      m.counter("carryover.reuse.tokens.read", tokenUnit, "Prompt tokens that prefill did not compute because of reuse, beyond what its own cache had."),
		confirmed: m.counter("carryover.reuse.tokens.confirmed", tokenUnit, "Prompt tokens that engines report as cached: prefill for turns with a ticket, decode for all turns with usage."),
		tickets:   m.counter("carryover.tickets", turnUnit, "Answers, by whether they left a ticket or why not."),
		choices:   m.counter("carryover.ticket.choices", ticketUnit, "Choices for new tickets: keep it for a turn, hand it back, or release it immediately."),
		retries:   m.counter("carryover.retries", turnUnit, "Further attempts of turns."),
		saved: kept[metric.Float64Counter](m)(meter.Float64Counter("carryover.prefill.saved", metric.WithUnit(seconds),
			metric.WithDescription("Time that prefill saved by reuse, at its learnt speed."))),
		ttft:    m.times("carryover.turn.ttft", "Time until the first byte of streams.", longTimes),
		whole:   m.times("carryover.turn.answer", "Time until whole answers: without a stream, or streams made of one.", longTimes),
		hitTTFT: m.times("carryover.reuse.ttft", "Time until the first byte of streams that are hits.", longTimes),
		hitTTFTWithout: m.times("carryover.reuse.ttft.without",
			"The same turns without reuse: their times plus what prefill saved, at its learnt speed.", longTimes),
		queue: m.times("carryover.turn.queue", "Time that turns waited for a slot.", shortTimes),
		leg:   m.times("carryover.leg.duration", "Time until a leg was answered (decode: until its headers) or failed.", longTimes),
		store: m.times("carryover.store.operation.duration", "Time of operations on the ticket store.", shortTimes),

		httpDuration: m.times("http.server.request.duration", "Duration of HTTP requests for answers of models.", longTimes),
		// Buckets follow the conventions of gen_ai, continued to five minutes if they end earlier.
		genAIFirst: m.times("gen_ai.server.time_to_first_token", "Time to the first token of an answer.",
			[]float64{0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 30, 100, 300}),
		genAIDuration: m.times("gen_ai.server.request.duration", "Duration of a request for an answer of a model.",
			[]float64{0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92, 163.84, 300}),
		genAIPerOutToken: m.times("gen_ai.server.time_per_output_token", "Time per output token after the first.",
			[]float64{0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5}),
		genAIUsage: kept[metric.Int64Histogram](m)(meter.Int64Histogram("gen_ai.client.token.usage", metric.WithUnit(tokenUnit),
			metric.WithDescription("Tokens of prompts and answers, where decode's usage was read."),
			metric.WithExplicitBucketBoundaries(1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864))),
	}
	return i, errors.Join(m.errs...)
}

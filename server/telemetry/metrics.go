package telemetry

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"carryover/server/record"
	"carryover/upstream"
)

// meterName is the instrumentation scope of all metrics of this package.
const meterName = "carryover/server/telemetry"

// Metrics are the metrics of turns and of store operations. Create them with NewMetrics. They are safe for concurrent use.
type Metrics struct {
	meter metric.Meter
	to    instruments

	turns   *labels[turnLabels]
	sources *labels[sourceLabels]
	paths   *labels[string]
	follow  *labels[string]
	proofs  *labels[string]
	roles   *labels[string]
	tickets *labels[string]
	legs    *labels[legLabels]
	http    *labels[httpLabels]
	genAI   *labels[genAILabels]
	store   *labels[storeLabels]
}

// Labels that distinguish measurements.
type (
	turnLabels struct {
		outcome, reason, path string
		followUp              bool
	}
	sourceLabels struct {
		source, outcome string
		followUp        bool
	}
	legLabels  struct{ role, instance, failure string }
	httpLabels struct {
		route   string
		status  int
		failure string
	}
	genAILabels struct{ operation, model, failure, tokens string }
	storeLabels struct{ operation, outcome string }
)

// The label value for something that is absent.
const none = "none"

// NewMetrics returns metrics that are written to a meter of this provider.
func NewMetrics(provider metric.MeterProvider) (*Metrics, error) {
	meter := provider.Meter(meterName)
	to, err := newInstruments(meter)
	if err != nil {
		return nil, fmt.Errorf("make instruments: %w", err)
	}
	one := func(name string) *labels[string] {
		return newLabels(other, func(value string) []attribute.KeyValue { return []attribute.KeyValue{attribute.String(name, value)} })
	}
	m := &Metrics{
		meter: meter, to: to, follow: one("follow_up"), proofs: one("proof"), roles: one("role"), tickets: one("result"), paths: one("path"),
		turns: newLabels(turnLabels{outcome: other, reason: other, path: other}, func(l turnLabels) []attribute.KeyValue {
			return []attribute.KeyValue{
				attribute.String("outcome", l.outcome), attribute.String("reason", l.reason), attribute.String("path", l.path), attribute.Bool("follow_up", l.followUp),
			}
		}),
		sources: newLabels(sourceLabels{source: other, outcome: other}, func(l sourceLabels) []attribute.KeyValue {
			return []attribute.KeyValue{attribute.String("id_source", l.source), attribute.String("outcome", l.outcome), attribute.Bool("follow_up", l.followUp)}
		}),
		legs: newLabels(legLabels{other, other, other}, func(l legLabels) []attribute.KeyValue {
			return withError(l.failure, attribute.String("role", l.role), attribute.String("instance", l.instance))
		}),
		http: newLabels(httpLabels{route: other, failure: other}, func(l httpLabels) []attribute.KeyValue {
			return withError(l.failure, attrMethod.String(methodPost), attrRoute.String(l.route), attrStatusCode.Int(l.status), attrScheme.String(schemeHTTP))
		}),
		genAI: newLabels(genAILabels{operation: other, model: other}, func(l genAILabels) []attribute.KeyValue {
			all := withError(l.failure, attrOperation.String(l.operation), attrProvider.String(providerVLLM), attrModel.String(l.model))
			if l.tokens != "" {
				all = append(all, attrTokenType.String(l.tokens))
			}
			return all
		}),
		store: newLabels(storeLabels{other, other}, func(l storeLabels) []attribute.KeyValue {
			return []attribute.KeyValue{attribute.String("operation", l.operation), attribute.String("outcome", l.outcome)}
		}),
	}
	m.begin()
	return m, nil
}

// withError adds the failure to the attributes, if there is one.
func withError(failure string, all ...attribute.KeyValue) []attribute.KeyValue {
	if failure == "" {
		return all
	}
	return append(all, attrErrorType.String(failure))
}

// begin writes zero to the counters of label values that are known beforehand, so that their first event shows as an increase.
func (m *Metrics) begin() {
	ctx := context.Background()
	for _, path := range []string{record.WayPrefillDecode, record.WayDecodeOnly} {
		for _, l := range []turnLabels{
			{record.Hit, none, path, true}, {record.Off, none, path, false}, {record.Miss, string(record.ReasonFirstTurn), path, false},
			{record.Prefix, string(record.ReasonFirstTurn), path, false},
		} {
			m.to.turns.Add(ctx, 0, m.turns.get(l).add...)
		}
	}
	for _, followUp := range []string{"true", "false"} {
		m.to.prompts.Add(ctx, 0, m.follow.get(followUp).add...)
	}
	for _, proof := range []string{"tokens", "engine"} {
		m.to.offered.Add(ctx, 0, m.proofs.get(proof).add...)
		m.to.read.Add(ctx, 0, m.proofs.get(proof).add...)
	}
	for _, role := range []upstream.Role{upstream.RolePrefill, upstream.RoleDecode} {
		m.to.confirmed.Add(ctx, 0, m.roles.get(role.String()).add...)
	}
	m.to.tickets.Add(ctx, 0, m.tickets.get("yes").add...)
	m.to.retries.Add(ctx, 0)
	m.to.saved.Add(ctx, 0)
}

// Observe records a turn that has ended. It is a record.Observer.
func (m *Metrics) Observe(r *record.Turn) {
	ctx := context.Background()
	outcome, reason := r.Reuse.Outcome()
	if reason == "" {
		reason = none
	}
	path := r.Path.Way
	if path == "" {
		path = none
	}
	m.to.turns.Add(ctx, 1, m.turns.get(turnLabels{outcome, reason, path, r.Reuse.FollowUp()}).add...)
	m.to.sources.Add(ctx, 1, m.sources.get(sourceLabels{cmp.Or(r.Source, none), outcome, r.Reuse.FollowUp()}).add...)
	m.to.prompts.Add(ctx, int64(r.Prompt()), m.follow.get(strconv.FormatBool(r.Reuse.FollowUp())).add...)
	m.reuse(ctx, r, outcome)
	if r.Stored != "" {
		m.to.tickets.Add(ctx, 1, m.tickets.get(r.Stored).add...)
	}
	if r.Retries > 0 {
		m.to.retries.Add(ctx, int64(r.Retries))
	}
	m.to.queue.Record(ctx, r.Queued.Seconds())
	m.firsts(ctx, r, path)
	for i := range r.Legs {
		leg := &r.Legs[i]
		key := legLabels{leg.Role.String(), leg.Instance, failureOfLeg(leg.Err)}
		m.to.leg.Record(ctx, leg.Took.Seconds(), m.legs.get(key).record...)
	}
	m.request(ctx, r)
}

// firsts measures how long the client waited for the first byte of a stream or for a whole answer, and what a hit is compared with.
func (m *Metrics) firsts(ctx context.Context, r *record.Turn, path string) {
	if r.TTFT > 0 {
		m.to.ttft.Record(ctx, r.TTFT.Seconds(), m.paths.get(path).record...)
	}
	if r.Whole > 0 {
		m.to.whole.Record(ctx, r.Whole.Seconds(), m.paths.get(path).record...)
	}
	if with, without, ok := r.HitTTFT(); ok {
		m.to.hitTTFT.Record(ctx, with.Seconds())
		m.to.hitTTFTWithout.Record(ctx, without.Seconds())
	}
}

// reuse counts the tokens that the turn reused, and the time saved.
func (m *Metrics) reuse(ctx context.Context, r *record.Turn, outcome string) {
	if cached := r.Answer.CachedTokens; cached > 0 {
		m.to.confirmed.Add(ctx, int64(cached), m.roles.get(upstream.RoleDecode.String()).add...)
	}
	if outcome != record.Hit {
		return
	}
	proof := m.proofs.get(r.Reuse.Proof).add
	m.to.offered.Add(ctx, int64(r.Reuse.Offered), proof...)
	m.to.read.Add(ctx, int64(r.Reuse.Read), proof...)
	if cached := r.Reuse.Cached; cached > 0 {
		m.to.confirmed.Add(ctx, int64(cached), m.roles.get(upstream.RolePrefill.String()).add...)
	}
	m.to.saved.Add(ctx, r.Reuse.Saved.Seconds())
}

// request measures the turn as a request by the semantic conventions of HTTP, and also by those of generative AI if a way was chosen for
// it.
func (m *Metrics) request(ctx context.Context, r *record.Turn) {
	failure, ours := failureOf(r)
	if !ours && failure != clientGone { // a request that there is no answer to
		failure = ""
	}
	m.to.httpDuration.Record(ctx, r.Took.Seconds(), m.http.get(httpLabels{r.API.Path(), r.End.Status, failure}).record...)
	if r.Path.Way == "" {
		return
	}
	key := genAILabels{operation: operation(r.API), model: cmp.Or(r.ModelShown(), other), failure: failure}
	m.to.genAIDuration.Record(ctx, r.Took.Seconds(), m.genAI.get(key).record...)
	key.failure = ""
	if r.TTFT > 0 {
		times := m.genAI.get(key).record
		m.to.genAIFirst.Record(ctx, r.TTFT.Seconds(), times...)
		if n := r.Answer.CompletionTokens; n > 1 {
			m.to.genAIPerOutToken.Record(ctx, (r.Took-r.TTFT).Seconds()/float64(n-1), times...)
		}
	}
	if n := r.Answer.PromptTokens; n >= 0 {
		key.tokens = "input"
		m.to.genAIUsage.Record(ctx, int64(n), m.genAI.get(key).record...)
	}
	if n := r.Answer.CompletionTokens; n >= 0 {
		key.tokens = "output"
		m.to.genAIUsage.Record(ctx, int64(n), m.genAI.get(key).record...)
	}
}

// other stands for a value outside of a bounded set, and for values beyond the bound of a set.
const other = "other"

// maxLabels bounds the combinations of label values of one kind. A fleet of a thousand instances has a thousand for each way in which its
// legs end. Names of pods that come and go stay until the process ends.
const maxLabels = 4096

// options are the options of a measurement: its labels.
type options struct {
	add    []metric.AddOption
	record []metric.RecordOption
}

func newOptions(labels ...attribute.KeyValue) options {
	set := metric.WithAttributeSet(attribute.NewSet(labels...))
	return options{[]metric.AddOption{set}, []metric.RecordOption{set}}
}

// labels makes the options of each combination of label values once, and keeps them.
type labels[K comparable] struct {
	of   func(K) []attribute.KeyValue
	rest K // stands for all combinations beyond the bound
	most int

	mu   sync.RWMutex // guards made
	made map[K]options
}

func newLabels[K comparable](rest K, of func(K) []attribute.KeyValue) *labels[K] {
	return &labels[K]{of: of, rest: rest, most: maxLabels, made: map[K]options{}}
}

// get returns the options of a combination.
func (l *labels[K]) get(key K) options {
	l.mu.RLock()
	made, found := l.made[key]
	l.mu.RUnlock()
	if found {
		return made
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if made, found = l.made[key]; found {
		return made
	}
	if len(l.made) >= l.most {
		if made, found = l.made[l.rest]; found {
			return made
		}
		key = l.rest
	}
	made = newOptions(l.of(key)...)
	l.made[key] = made
	return made
}

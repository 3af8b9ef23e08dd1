package telemetry

import (
	"cmp"
	"context"
	"fmt"
	"slices"
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

	turns, sources, legs, http, genAI, store *labels
	paths, follow, proofs, roles, tickets    *labels // one each
}

// The label value for something that is absent.
const none = "none"

// NewMetrics returns metrics that are written to a meter of this provider.
func NewMetrics(provider metric.MeterProvider) (*Metrics, error) {
	meter := provider.Meter(meterName)
	to, err := newInstruments(meter)
	if err != nil {
		return nil, fmt.Errorf("make instruments: %w", err)
	}
	one := func(name string) *labels { return newLabels(labelSet{attribute.String(name, other)}) }
	m := &Metrics{
		meter: meter, to: to, follow: one("follow_up"), proofs: one("proof"), roles: one("role"), tickets: one("result"), paths: one("path"),
		turns: newLabels(turnLabels(other, other, other, false)), sources: newLabels(sourceLabels(other, other, false)),
		legs: newLabels(legLabels(other, other, other)), http: newLabels(httpLabels(other, 0, other)),
		genAI: newLabels(genAILabels(other, other, attribute.KeyValue{})), store: newLabels(storeLabels(other, other)),
	}
	m.begin()
	return m, nil
}

func turnLabels(outcome, reason, path string, followUp bool) labelSet {
	return labelSet{
		attribute.String("outcome", outcome), attribute.String("reason", reason), attribute.String("path", path), attribute.Bool("follow_up", followUp),
	}
}

func sourceLabels(source, outcome string, followUp bool) labelSet {
	return labelSet{attribute.String("id_source", source), attribute.String("outcome", outcome), attribute.Bool("follow_up", followUp)}
}

func legLabels(role, instance, failure string) labelSet {
	return labelSet{attribute.String("role", role), attribute.String("instance", instance), failed(failure)}
}

func httpLabels(route string, status int, failure string) labelSet {
	return labelSet{attrMethod.String(methodPost), attrRoute.String(route), attrStatusCode.Int(status), attrScheme.String(schemeHTTP), failed(failure)}
}

func genAILabels(operation, model string, last attribute.KeyValue) labelSet {
	return labelSet{attrOperation.String(operation), attrProvider.String(providerVLLM), attrModel.String(model), last}
}

func storeLabels(operation, outcome string) labelSet {
	return labelSet{attribute.String("operation", operation), attribute.String("outcome", outcome)}
}

// failed returns the label of a failure, the zero value if there is none.
func failed(failure string) (label attribute.KeyValue) {
	if failure != "" {
		label = attrErrorType.String(failure)
	}
	return label
}

// begin writes zero to the counters of label values that are known beforehand, so that their first event shows as an increase.
func (m *Metrics) begin() {
	ctx := context.Background()
	for _, path := range []string{record.WayPrefillDecode, record.WayDecodeOnly} {
		for _, l := range []labelSet{
			turnLabels(record.Hit, none, path, true), turnLabels(record.Off, none, path, false),
			turnLabels(record.Miss, record.ReasonFirstTurn, path, false), turnLabels(record.Prefix, record.ReasonFirstTurn, path, false),
		} {
			m.to.turns.Add(ctx, 0, m.turns.get(l).add...)
		}
	}
	for _, followUp := range []string{"true", "false"} {
		m.to.prompts.Add(ctx, 0, m.follow.one(followUp).add...)
	}
	for _, proof := range []string{"tokens", "engine"} {
		m.to.offered.Add(ctx, 0, m.proofs.one(proof).add...)
		m.to.read.Add(ctx, 0, m.proofs.one(proof).add...)
	}
	for _, role := range []upstream.Role{upstream.RolePrefill, upstream.RoleDecode} {
		m.to.confirmed.Add(ctx, 0, m.roles.one(role.String()).add...)
	}
	m.to.tickets.Add(ctx, 0, m.tickets.one("yes").add...)
	m.to.retries.Add(ctx, 0)
	m.to.saved.Add(ctx, 0)
}

// Observe records a turn that has ended. It is a record.Observer.
func (m *Metrics) Observe(r *record.Turn) {
	ctx := context.Background()
	outcome, reason := r.Reuse.Outcome()
	path := cmp.Or(r.Path.Way, none)
	m.to.turns.Add(ctx, 1, m.turns.get(turnLabels(outcome, cmp.Or(reason, none), path, r.Reuse.FollowUp())).add...)
	m.to.sources.Add(ctx, 1, m.sources.get(sourceLabels(cmp.Or(r.Source, none), outcome, r.Reuse.FollowUp())).add...)
	m.to.prompts.Add(ctx, int64(r.Prompt()), m.follow.one(strconv.FormatBool(r.Reuse.FollowUp())).add...)
	m.reuse(ctx, r, outcome)
	if r.Stored != "" {
		m.to.tickets.Add(ctx, 1, m.tickets.one(r.Stored).add...)
	}
	if r.Retries > 0 {
		m.to.retries.Add(ctx, int64(r.Retries))
	}
	m.to.queue.Record(ctx, r.Queued.Seconds())
	m.firsts(ctx, r, path)
	for i := range r.Legs {
		leg := &r.Legs[i]
		m.to.leg.Record(ctx, leg.Took.Seconds(), m.legs.get(legLabels(leg.Role.String(), leg.Instance, failureOfLeg(leg.Err))).record...)
	}
	m.request(ctx, r)
}

// firsts measures how long the client waited for the first byte of a stream or for a whole answer, and what a hit is compared with.
func (m *Metrics) firsts(ctx context.Context, r *record.Turn, path string) {
	if r.TTFT > 0 {
		m.to.ttft.Record(ctx, r.TTFT.Seconds(), m.paths.one(path).record...)
	}
	if r.Whole > 0 {
		m.to.whole.Record(ctx, r.Whole.Seconds(), m.paths.one(path).record...)
	}
	if with, without, ok := r.HitTTFT(); ok {
		m.to.hitTTFT.Record(ctx, with.Seconds())
		m.to.hitTTFTWithout.Record(ctx, without.Seconds())
	}
}

// reuse counts the tokens that the turn reused, and the time saved.
func (m *Metrics) reuse(ctx context.Context, r *record.Turn, outcome string) {
	if cached := r.Answer.CachedTokens; cached > 0 {
		m.to.confirmed.Add(ctx, int64(cached), m.roles.one(upstream.RoleDecode.String()).add...)
	}
	if outcome != record.Hit {
		return
	}
	proof := m.proofs.one(r.Reuse.Proof).add
	m.to.offered.Add(ctx, int64(r.Reuse.Offered), proof...)
	m.to.read.Add(ctx, int64(r.Reuse.Read), proof...)
	if cached := r.Reuse.Cached; cached > 0 {
		m.to.confirmed.Add(ctx, int64(cached), m.roles.one(upstream.RolePrefill.String()).add...)
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
	m.to.httpDuration.Record(ctx, r.Took.Seconds(), m.http.get(httpLabels(r.API.Path(), r.End.Status, failure)).record...)
	if r.Path.Way == "" {
		return
	}
	labels := func(last attribute.KeyValue) []metric.RecordOption {
		return m.genAI.get(genAILabels(operation(r.API), cmp.Or(r.ModelShown(), other), last)).record
	}
	m.to.genAIDuration.Record(ctx, r.Took.Seconds(), labels(failed(failure))...)
	if r.TTFT > 0 {
		times := labels(failed(""))
		m.to.genAIFirst.Record(ctx, r.TTFT.Seconds(), times...)
		if n := r.Answer.CompletionTokens; n > 1 {
			m.to.genAIPerOutToken.Record(ctx, (r.Took-r.TTFT).Seconds()/float64(n-1), times...)
		}
	}
	if n := r.Answer.PromptTokens; n >= 0 {
		m.to.genAIUsage.Record(ctx, int64(n), labels(attrTokenType.String("input"))...)
	}
	if n := r.Answer.CompletionTokens; n >= 0 {
		m.to.genAIUsage.Record(ctx, int64(n), labels(attrTokenType.String("output"))...)
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

// labelSet are the labels of a measurement. Those without a name are none.
type labelSet [5]attribute.KeyValue

// labels makes the options of each combination of label values once, and keeps them.
type labels struct {
	rest labelSet // stands for all combinations beyond the bound

	mu   sync.RWMutex // guards made
	made map[labelSet]options
}

func newLabels(rest labelSet) *labels { return &labels{rest: rest, made: map[labelSet]options{}} }

// one returns the options of a value of the only label.
func (l *labels) one(value string) options { return l.get(labelSet{l.rest[0].Key.String(value)}) }

// get returns the options of a combination.
func (l *labels) get(key labelSet) options {
	l.mu.RLock()
	made, found := l.made[key]
	l.mu.RUnlock()
	if found {
		return made
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, found = l.made[key]; !found && len(l.made) >= maxLabels {
		key = l.rest
	}
	if made, found = l.made[key]; !found {
		named := slices.DeleteFunc(slices.Clone(key[:]), func(label attribute.KeyValue) bool { return label.Key == "" })
		set := metric.WithAttributeSet(attribute.NewSet(named...))
		made = options{[]metric.AddOption{set}, []metric.RecordOption{set}}
		l.made[key] = made
	}
	return made
}

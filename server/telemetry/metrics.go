package telemetry

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"carryover/server/record"
	"carryover/upstream"
)

const meterName = "carryover/server/telemetry"

// Metrics are the metrics of turns and of store operations. They are safe for concurrent use.
type Metrics struct {
	meter metric.Meter
	instruments
}

const none = "none"

const (
	attrProof  = attribute.Key("proof")
	attrResult = attribute.Key("result")
	attrChoice = attribute.Key("choice")
)

// NewMetrics returns metrics of a meter of this provider.
func NewMetrics(provider metric.MeterProvider) (*Metrics, error) {
	m := &Metrics{meter: provider.Meter(meterName)}
	var err error
	if m.instruments, err = newInstruments(m.meter); err != nil {
		return nil, fmt.Errorf("make instruments: %w", err)
	}
	m.begin()
	return m, nil
}

func turnLabels(outcome, reason, path string, followUp bool) []attribute.KeyValue {
	return []attribute.KeyValue{
		attribute.String("outcome", outcome), attribute.String("reason", reason), attribute.String("path", path), attribute.Bool("follow_up", followUp),
	}
}

func followUpLabel(is bool) attribute.KeyValue {
	return attribute.String("follow_up", strconv.FormatBool(is))
}
func roleLabel(role upstream.Role) attribute.KeyValue { return attribute.String("role", role.String()) }

func failureLabel(failure string) (label attribute.KeyValue) {
	if failure != "" {
		label = attrErrorType.String(failure)
	}
	return label
}

// begin writes zero to counters whose label values are known, so that their first event shows as an increase.
func (m *Metrics) begin() {
	for _, path := range []string{record.WayPrefillDecode, record.WayDecodeOnly} {
		m.turns.add(0, turnLabels(record.Hit, none, path, true)...)
		m.turns.add(0, turnLabels(record.Off, none, path, false)...)
		m.turns.add(0, turnLabels(record.Miss, record.ReasonFirstTurn, path, false)...)
		m.turns.add(0, turnLabels(record.Prefix, record.ReasonFirstTurn, path, false)...)
	}
	m.prompts.add(0, followUpLabel(true))
	m.prompts.add(0, followUpLabel(false))
	for _, proof := range []string{"tokens", "engine"} {
		m.offered.add(0, attrProof.String(proof))
		m.read.add(0, attrProof.String(proof))
	}
	m.confirmed.add(0, roleLabel(upstream.RolePrefill))
	m.confirmed.add(0, roleLabel(upstream.RoleDecode))
	m.tickets.add(0, attrResult.String("yes"))
	for _, choice := range []string{"ticket", "hand_back", "release"} {
		m.choices.add(0, attrChoice.String(choice))
	}
	m.retries.add(0)
	m.saved.Add(context.Background(), 0)
}

// Observe records a turn that has ended. It is a record.Observer.
func (m *Metrics) Observe(r *record.Turn) {
	outcome, reason := r.Reuse.Outcome()
	path, followUp := cmp.Or(r.Path.Way, none), r.Reuse.FollowUp()
	m.turns.add(1, turnLabels(outcome, cmp.Or(reason, none), path, followUp)...)
	m.sources.add(1, attribute.String("id_source", cmp.Or(r.Source, none)), attribute.String("outcome", outcome), attribute.Bool("follow_up", followUp))
	m.prompts.add(r.Prompt(), followUpLabel(followUp))
	m.reuse(r, outcome)
	if r.Stored != "" {
		m.tickets.add(1, attrResult.String(r.Stored))
	}
	if chosen := r.Keep.What; chosen != "" {
		m.choices.add(1, attrChoice.String(chosen))
	}
	if r.Retries > 0 {
		m.retries.add(r.Retries)
	}
	m.queue.record(r.Queued)
	// The client's wait for a stream's first byte or a whole answer, and what a hit compares with.
	if r.TTFT > 0 {
		m.ttft.record(r.TTFT, attribute.String("path", path))
	}
	if r.Whole > 0 {
		m.whole.record(r.Whole, attribute.String("path", path))
	}
	if without := r.TTFTWithout(); without > 0 {
		m.hitTTFT.record(r.TTFT)
		m.hitTTFTWithout.record(without)
	}
	for _, leg := range r.Legs {
		m.leg.record(leg.Took, roleLabel(leg.Role), attribute.String("instance", leg.Instance), failureLabel(failureOfLeg(leg.Err)))
	}
	m.request(r)
}

func (m *Metrics) reuse(r *record.Turn, outcome string) {
	if cached := r.Answer.CachedTokens; cached > 0 {
		m.confirmed.add(cached, roleLabel(upstream.RoleDecode))
	}
	if outcome != record.Hit {
		return
	}
	m.offered.add(r.Reuse.Offered, attrProof.String(r.Reuse.Proof))
	m.read.add(r.Reuse.Read, attrProof.String(r.Reuse.Proof))
	if cached := r.Reuse.Cached; cached > 0 {
		m.confirmed.add(cached, roleLabel(upstream.RolePrefill))
	}
	m.saved.Add(context.Background(), r.Reuse.Saved.Seconds())
}

// request measures the turn by the semantic conventions of HTTP and, if a path was chosen, of generative AI.
func (m *Metrics) request(r *record.Turn) {
	failure, ours := failureOf(r)
	if !ours && !r.ClientLeft() { // the client asked for something impossible
		failure = ""
	}
	m.httpDuration.record(r.Took, attrMethod.String(methodPost), attrRoute.String(r.API.Path()), attrStatusCode.Int(r.Status), attrScheme.String(schemeHTTP), failureLabel(failure))
	if r.Path.Way == "" {
		return
	}
	labels := func(last attribute.KeyValue) []attribute.KeyValue {
		return []attribute.KeyValue{attrOperation.String(operation(r.API)), attrProvider.String(providerVLLM), attrModel.String(cmp.Or(r.ModelShown(), other)), last}
	}
	m.genAIDuration.record(r.Took, labels(failureLabel(failure))...)
	if r.TTFT > 0 {
		m.genAIFirst.record(r.TTFT, labels(failureLabel(""))...)
		if n := r.Answer.CompletionTokens; n > 1 {
			m.genAIPerOutToken.record((r.Took-r.TTFT)/time.Duration(n-1), labels(failureLabel(""))...)
		}
	}
	for kind, n := range map[string]int{"input": r.Answer.PromptTokens, "output": r.Answer.CompletionTokens} {
		if n >= 0 {
			m.genAIUsage.Record(context.Background(), int64(n), m.genAIDuration.get(labels(attrTokenType.String(kind)))...)
		}
	}
}

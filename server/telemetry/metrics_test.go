package telemetry

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"carryover/convcache"
	"carryover/server/record"
	"carryover/upstream"
	"carryover/upstream/body"
)

// newMetrics returns metrics, and what returns the value of each series: of a histogram how many it has counted.
func newMetrics(tb testing.TB) (*Metrics, func() map[string]float64) {
	tb.Helper()
	reader := sdkmetric.NewManualReader()
	m, err := NewMetrics(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader), sdkmetric.WithCardinalityLimit(0)))
	if err != nil {
		tb.Fatal(err)
	}
	return m, func() map[string]float64 {
		var all metricdata.ResourceMetrics
		if err := reader.Collect(context.Background(), &all); err != nil {
			tb.Fatal(err)
		}
		series := map[string]float64{}
		for _, metric := range all.ScopeMetrics[0].Metrics {
			add := func(labels attribute.Set, value float64) {
				series[metric.Name+"{"+labels.Encoded(attribute.DefaultEncoder())+"}"] += value
			}
			switch data := metric.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					add(p.Attributes, float64(p.Value))
				}
			case metricdata.Sum[float64]:
				for _, p := range data.DataPoints {
					add(p.Attributes, p.Value)
				}
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					add(p.Attributes, float64(p.Count))
				}
			case metricdata.Histogram[int64]:
				for _, p := range data.DataPoints {
					add(p.Attributes, float64(p.Count))
				}
			default:
				tb.Fatalf("%s: %T", metric.Name, data)
			}
		}
		return series
	}
}

// hit is the record of a usual turn.
func hit() *record.Turn {
	began := time.Now()
	return &record.Turn{
		Turn: "t", Asked: record.Asked{API: body.Chat, Model: "m", Conversation: "c", Source: "conversation_id"},
		Path:  record.Path{Way: record.WayPrefillDecode, Tokens: 100},
		Reuse: record.Reuse{Continues: true, Hit: true, Proof: "tokens", Offered: 2000, Cached: 2000, Saved: 400 * time.Millisecond}, Stored: "yes",
		Legs: []*record.Leg{
			{Role: upstream.RolePrefill, Instance: "p-1", Began: began, Took: 30 * time.Millisecond},
			{Role: upstream.RoleDecode, Instance: "d-1", Began: began, Took: 20 * time.Millisecond},
		},
		Answer: record.Answer{Finish: "stop", PromptTokens: 2100, CompletionTokens: 300, CachedTokens: -1}, Status: 200,
		Began: began, Lookup: time.Millisecond, TTFT: 60 * time.Millisecond, Took: 3 * time.Second,
	}
}

// Nothing that a client chooses makes a series: models that nobody serves, names, paths, conversations.
func TestObserve_TenThousandClientsAddNoSeries(t *testing.T) {
	m, read := newMetrics(t)
	draw := rand.New(rand.NewPCG(1, 2))
	turn := func(n int) {
		r := hit()
		r.Turn, r.Conversation, r.Source = fmt.Sprint("turn", n), fmt.Sprint("c", n), "conversation_id"
		switch n % 3 {
		case 1:
			r.Reuse, r.Stored = record.Reuse{Reason: record.ReasonFirstTurn, Cached: -1}, "no_handover"
		case 2:
			r.Reuse, r.Path = record.Reuse{Off: true, Cached: -1}, record.Path{Way: record.WayDecodeOnly, Reason: "n"}
		}
		if n >= 3 {
			r.Model, r.Unserved = fmt.Sprint("model-", draw.Uint64()), true
			r.Path.Tokens, r.Answer.PromptTokens = draw.IntN(1e6), draw.IntN(1e6)
		}
		if n%7 == 6 {
			r.Model = ""
		}
		m.Observe(r)
	}
	for n := range 9 {
		turn(n)
	}
	before := len(read())
	for n := range 10_000 {
		turn(9 + n)
	}
	after := read()
	if len(after) != before {
		t.Errorf("%d series after 9 turns, %d after 10,009", before, len(after))
	}
	if got := sumOf(after, "carryover.turns"); got != 10_009 {
		t.Errorf("carryover.turns: got %v, want 10,009", got)
	}
	for name := range after {
		if strings.Contains(name, "model-") || strings.Contains(name, "turn1") {
			t.Errorf("a client's word: %s", name)
		}
	}
}

func sumOf(series map[string]float64, name string) (sum float64) {
	for one, value := range series {
		if strings.HasPrefix(one, name+"{") {
			sum += value
		}
	}
	return sum
}

// Words that are no closed set after all are counted as one beyond the bound, and counted all the same.
func TestObserve_WordsBeyondTheBoundAreOne(t *testing.T) {
	m, read := newMetrics(t)
	const turns = 3 * maxLabels
	for n := range turns {
		r := hit()
		r.Reuse = record.Reuse{Reason: fmt.Sprint("reason", n), Cached: -1}
		r.Stored, r.Legs[0].Instance = fmt.Sprint("why", n), fmt.Sprint("p", n)
		m.Observe(r)
	}
	after := read()
	for name, want := range map[string]float64{"carryover.turns": turns, "carryover.tickets": turns, "carryover.leg.duration": 2 * turns} {
		series := 0
		for one := range after {
			if strings.HasPrefix(one, name+"{") {
				series++
			}
		}
		if got := sumOf(after, name); got != want || series > maxLabels+1 {
			t.Errorf("%s: %v in %d series, want %v in %d at most", name, got, series, want, maxLabels+1)
		}
	}
	if got := after["carryover.turns{follow_up=false,outcome=other,path=other,reason=other}"]; got < turns-maxLabels {
		t.Errorf("other: got %v", got)
	}
}

// displacing is a store whose puts displace two tickets.
type displacing struct{ convcache.Store }

// Put implements convcache.Store.
func (displacing) Put(context.Context, convcache.Key, convcache.Ticket, time.Duration) ([]convcache.Ticket, convcache.Outcome) {
	return make([]convcache.Ticket, 2), convcache.Stored
}

func TestStore_CountsWhatWasDisplaced(t *testing.T) {
	m, _ := newMetrics(t)
	s := m.Store(displacing{})
	if displaced, _ := s.Put(t.Context(), convcache.Key{}, convcache.Ticket{}, time.Second); len(displaced) != 2 || s.displaced.Load() != 2 {
		t.Errorf("%d displaced, %d counted", len(displaced), s.displaced.Load())
	}
}

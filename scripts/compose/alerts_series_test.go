package compose

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
)

// series is a store of Prometheus in memory.
type series []storage.Series

// parse reads series in the notation of Prometheus' tests, a line each, with a sample a minute from the beginning of time.
func parse(t *testing.T, text string) series {
	t.Helper()
	var all series
	for line := range strings.Lines(text) {
		lset, values, err := parser.NewParser(parser.Options{}).ParseSeriesDesc(strings.TrimSpace(line))
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		var samples []chunks.Sample
		for i, value := range values {
			if !value.Omitted {
				samples = append(samples, point{int64(i) * time.Minute.Milliseconds(), value.Value})
			}
		}
		all = append(all, storage.NewListSeries(lset, samples))
	}
	return all
}

// Querier implements storage.Queryable.
func (s series) Querier(int64, int64) (storage.Querier, error) { return s, nil }

// Select implements storage.Querier.
func (s series) Select(_ context.Context, _ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
	var found series
next:
	for _, one := range s {
		for _, matcher := range matchers {
			if !matcher.Matches(one.Labels().Get(matcher.Name)) {
				continue next
			}
		}
		found = append(found, one)
	}
	return &cursor{found: found, at: -1}
}

// LabelValues implements storage.Querier; a query does not ask for it.
func (series) LabelValues(context.Context, string, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, nil
}

// LabelNames likewise.
func (series) LabelNames(context.Context, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, nil
}

// Close implements storage.Querier.
func (series) Close() error { return nil }

// cursor implements storage.SeriesSet.
type cursor struct {
	found series
	at    int
}

func (c *cursor) Next() bool                      { c.at++; return c.at < len(c.found) }
func (c *cursor) At() storage.Series              { return c.found[c.at] }
func (*cursor) Err() error                        { return nil }
func (*cursor) Warnings() annotations.Annotations { return nil }

// point implements chunks.Sample.
type point struct {
	t int64
	v float64
}

func (point) ST() int64                     { return 0 }
func (p point) T() int64                    { return p.t }
func (p point) F() float64                  { return p.v }
func (point) H() *histogram.Histogram       { return nil }
func (point) FH() *histogram.FloatHistogram { return nil }
func (point) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (p point) Copy() chunks.Sample         { return p }

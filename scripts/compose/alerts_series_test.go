package compose

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
)

// series is a store of Prometheus in memory.
type series struct {
	rest // what a query does not ask for

	all []storage.Series
}

type rest = storage.Querier

// parse reads series in the notation of Prometheus' tests, a line each, with a sample a minute from the beginning of time.
func parse(t *testing.T, text string) series {
	t.Helper()
	all := series{rest: storage.NoopQuerier()}
	for line := range strings.Lines(text) {
		lset, values, err := parser.NewParser(parser.Options{}).ParseSeriesDesc(strings.TrimSpace(line))
		must(t, err)
		var samples []chunks.Sample
		for i, value := range values {
			if !value.Omitted {
				samples = append(samples, point{t: int64(i) * time.Minute.Milliseconds(), v: value.Value})
			}
		}
		all.all = append(all.all, storage.NewListSeries(lset, samples))
	}
	return all
}

// Querier implements storage.Queryable.
func (s series) Querier(int64, int64) (storage.Querier, error) { return s, nil }

// Select implements storage.Querier.
func (s series) Select(_ context.Context, _ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
	found := &cursor{SeriesSet: storage.EmptySeriesSet(), at: -1}
next:
	for _, one := range s.all {
		for _, matcher := range matchers {
			if !matcher.Matches(one.Labels().Get(matcher.Name)) {
				continue next
			}
		}
		found.all = append(found.all, one)
	}
	return found
}

// cursor goes through series.
type cursor struct {
	storage.SeriesSet

	all []storage.Series
	at  int
}

func (c *cursor) Next() bool         { c.at++; return c.at < len(c.all) }
func (c *cursor) At() storage.Series { return c.all[c.at] }

// point is a sample that is a number.
type point struct {
	chunks.Sample

	t int64
	v float64
}

func (p point) T() int64               { return p.t }
func (p point) F() float64             { return p.v }
func (point) ST() int64                { return 0 }
func (point) Type() chunkenc.ValueType { return chunkenc.ValFloat }

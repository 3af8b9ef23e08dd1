package e2e

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// scraped is a Prometheus text: the value of each series, by its name with its labels, and the kind of each family.
type scraped struct {
	series map[string]float64
	kinds  map[string]string
	text   string
}

// scrape asks a handler of /metrics.
func scrape(t *testing.T, handler http.Handler) scraped {
	t.Helper()
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusOK {
		t.Fatalf("/metrics: %d %s", w.Code, w.Body)
	}
	return readScrape(t, w.Body.String())
}

func readScrape(t *testing.T, text string) scraped {
	t.Helper()
	s := scraped{series: map[string]float64{}, kinds: map[string]string{}, text: text}
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if rest, ok := strings.CutPrefix(line, "# TYPE "); ok {
			name, kind, _ := strings.Cut(rest, " ")
			s.kinds[name] = kind
			continue
		}
		if strings.HasPrefix(line, "#") {
			continue
		}
		end := strings.LastIndexByte(line, ' ')
		if end < 0 {
			t.Fatalf("not a series: %q", line)
		}
		value, err := strconv.ParseFloat(line[end+1:], 64)
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		s.series[line[:end]] = value
	}
	return s
}

// own are the series of families with this prefix, but for buckets and sums of times, which no test can know.
func (s scraped) own(prefixes ...string) map[string]float64 {
	own := maps.Clone(s.series)
	maps.DeleteFunc(own, func(name string, _ float64) bool {
		bare, _, _ := strings.Cut(name, "{")
		known := slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
		return !known || strings.HasSuffix(bare, "_bucket") || strings.HasSuffix(bare, "_seconds_sum") || strings.HasSuffix(bare, "_seconds_total")
	})
	return own
}

// sum adds up all series of a name whose labels contain these texts.
func (s scraped) sum(name string, with ...string) (total float64) {
	for series, value := range s.series {
		bare, labels, _ := strings.Cut(series, "{")
		if bare == name && !slices.ContainsFunc(with, func(label string) bool { return !strings.Contains(labels, label) }) {
			total += value
		}
	}
	return total
}

package telemetry

import (
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

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

package facts

import (
	"container/list"
	"iter"
	"maps"
	"slices"
)

// bounded is a map of at most so many entries, for what requests teach: however many entries one sender makes, those of others stay. Where one
// more needs room, one goes: of those whose senders have most, the one that was used longest ago. It is not safe for concurrent use.
type bounded[K comparable, V any] struct {
	most    int
	entries map[K]*list.Element
	order   list.List      // of *entry, the one used last in front
	of      map[string]int // how many entries a sender has
}

type entry[K comparable, V any] struct {
	sender string
	key    K
	value  V
}

// newBounded returns a map of at most so many entries.
func newBounded[K comparable, V any](most int) *bounded[K, V] {
	return &bounded[K, V]{most: most, entries: map[K]*list.Element{}, of: map[string]int{}}
}

// get returns the value of a key, and uses its entry.
func (m *bounded[K, V]) get(key K) (value V, known bool) {
	at, known := m.entries[key]
	if !known {
		return value, false
	}
	m.order.MoveToFront(at)
	return at.Value.(*entry[K, V]).value, true
}

// put sets the value of a key. An entry stays that of its first sender.
func (m *bounded[K, V]) put(sender string, key K, value V) {
	if at, known := m.entries[key]; known {
		m.order.MoveToFront(at)
		at.Value.(*entry[K, V]).value = value
		return
	}
	if len(m.entries) >= m.most {
		m.evict()
	}
	m.entries[key] = m.order.PushFront(&entry[K, V]{sender, key, value})
	m.of[sender]++
}

func (m *bounded[K, V]) evict() {
	most := slices.Max(slices.Collect(maps.Values(m.of)))
	for at := m.order.Back(); at != nil; at = at.Prev() {
		if e := at.Value.(*entry[K, V]); m.of[e.sender] == most {
			m.order.Remove(at)
			delete(m.entries, e.key)
			if m.of[e.sender]--; most == 1 {
				delete(m.of, e.sender)
			}
			return
		}
	}
}

// values returns all values, those used last first.
func (m *bounded[K, V]) values() iter.Seq[V] {
	return func(yield func(V) bool) {
		for at := m.order.Front(); at != nil; at = at.Next() {
			if !yield(at.Value.(*entry[K, V]).value) {
				return
			}
		}
	}
}

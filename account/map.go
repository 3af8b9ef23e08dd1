package account

import "iter"

// Map is a map of at most so many entries. Where one more needs room, that one goes which was used longest ago of the account that has most.
// It is not safe for concurrent use.
type Map[K comparable, V any] struct {
	most   int
	places map[K]*Place[entry[K, V]]
	pool   Pool[entry[K, V]]
}

type entry[K comparable, V any] struct {
	key   K
	value V
}

// NewMap returns an empty map of at most so many entries.
func NewMap[K comparable, V any](most int) *Map[K, V] {
	return &Map[K, V]{most: most, places: map[K]*Place[entry[K, V]]{}}
}

// Get returns the value of a key, and uses its entry.
func (m *Map[K, V]) Get(key K) (value V, known bool) {
	place, known := m.places[key]
	if known {
		m.pool.Use(place)
		value = place.Value.value
	}
	return value, known
}

// Put sets the value of a key, whose entry stays that of its first account.
func (m *Map[K, V]) Put(account string, key K, value V) {
	if place := m.places[key]; place != nil {
		m.pool.Use(place)
		place.Value.value = value
		return
	}
	if m.pool.Len() >= m.most {
		oldest := m.pool.Most().Oldest()
		delete(m.places, oldest.Value.key)
		m.pool.Remove(oldest)
	}
	m.places[key] = m.pool.Add(account, 1, entry[K, V]{key, value})
}

// All lists the entries in no order.
func (m *Map[K, V]) All() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		for key, place := range m.places {
			if !yield(key, place.Value.value) {
				return
			}
		}
	}
}

// Package account shares limited room: whatever one account adds, values of smaller accounts stay. Package request names the account of a
// client.
package account

import (
	"container/heap"
	"container/list"
	"iter"
)

// Pool is a set of values with weights and accounts. The zero value is empty. It is not safe for concurrent use.
type Pool[T any] struct {
	shares map[string]*Share[T]
	most   Heap[*Share[T]]
	Len    int
	uses   uint64
}

// Share is the values of one account, at least one.
type Share[T any] struct {
	account string
	weight  int64
	places  list.List // of *Place[T], the least recently used first
	at      int       // index in Pool.most
}

// Place is the place of a value in its pool.
type Place[T any] struct {
	Value  T
	share  *Share[T]
	weight int64
	used   uint64 // Pool.uses at the last use
	at     *list.Element
}

// Add adds a value and uses it.
func (p *Pool[T]) Add(account string, weight int64, value T) *Place[T] {
	s := p.shares[account]
	if s == nil {
		if p.shares == nil {
			p.shares = map[string]*Share[T]{}
		}
		s = &Share[T]{account: account}
		p.shares[account] = s
	}
	p.Len++
	p.uses++
	place := &Place[T]{Value: value, share: s, weight: weight, used: p.uses}
	place.at = s.places.PushBack(place)
	if s.weight += weight; s.places.Len() == 1 {
		heap.Push(&p.most, s)
	} else {
		heap.Fix(&p.most, s.at)
	}
	return place
}

// Use makes a value the most recently used.
func (p *Pool[T]) Use(place *Place[T]) {
	p.uses++
	place.used = p.uses
	place.share.places.MoveToBack(place.at)
	heap.Fix(&p.most, place.share.at)
}

// Weigh changes the weight of a value.
func (p *Pool[T]) Weigh(place *Place[T], weight int64) {
	place.share.weight += weight - place.weight
	place.weight = weight
	heap.Fix(&p.most, place.share.at)
}

// Remove removes a value that is in the pool.
func (p *Pool[T]) Remove(place *Place[T]) {
	s := place.share
	p.Len--
	s.places.Remove(place.at)
	if s.weight -= place.weight; s.places.Len() > 0 {
		heap.Fix(&p.most, s.at)
		return
	}
	heap.Remove(&p.most, s.at)
	delete(p.shares, s.account)
}

// Most returns the heaviest share, nil if the pool is empty. Of equal shares it returns the one with the least recently used value.
func (p *Pool[T]) Most() *Share[T] {
	if p.Len == 0 {
		return nil
	}
	return p.most[0]
}

// Of returns the share of an account, nil if it has none.
func (p *Pool[T]) Of(account string) *Share[T] { return p.shares[account] }

// Oldest returns the least recently used value.
func (s *Share[T]) Oldest() *Place[T] { return s.places.Front().Value.(*Place[T]) }

// Newest returns the most recently used value.
func (s *Share[T]) Newest() *Place[T] { return s.places.Back().Value.(*Place[T]) }

// All lists the values of a share, the least recently used first.
func (s *Share[T]) All() iter.Seq[*Place[T]] {
	return func(yield func(*Place[T]) bool) {
		for at := s.places.Front(); at != nil && yield(at.Value.(*Place[T])); at = at.Next() {
		}
	}
}

// Before implements Ordered: the share that gives way first is in front.
func (s *Share[T]) Before(other *Share[T]) bool {
	return s.weight > other.weight || s.weight == other.weight && s.Oldest().used < other.Oldest().used
}

// Place implements Ordered.
func (s *Share[T]) Place() *int { return &s.at }

// Ordered is a value of a Heap.
type Ordered[T any] interface {
	Before(other T) bool // it is to be nearer to the front
	Place() *int         // its index in the heap, -1 once it was taken out
}

// Heap is for package heap, of values that know their place, so that any can be taken out.
type Heap[T Ordered[T]] []T

// Len implements heap.Interface.
func (h Heap[T]) Len() int { return len(h) }

// Less implements heap.Interface.
func (h Heap[T]) Less(i, j int) bool { return h[i].Before(h[j]) }

// Swap implements heap.Interface.
func (h Heap[T]) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	*h[i].Place(), *h[j].Place() = i, j
}

// Push implements heap.Interface.
func (h *Heap[T]) Push(x any) {
	v := x.(T)
	*v.Place() = len(*h)
	*h = append(*h, v)
}

// Pop implements heap.Interface.
func (h *Heap[T]) Pop() any {
	last := len(*h) - 1
	v := (*h)[last]
	clear((*h)[last:])
	*h, *v.Place() = (*h)[:last], -1
	return v
}

// Map is a map with a bound on its entries. A full one drops the least recently used entry of the account with the most. It is not safe for
// concurrent use.
type Map[K comparable, V any] struct {
	most   int
	places map[K]*Place[entry[K, V]]
	pool   Pool[entry[K, V]]
}

type entry[K comparable, V any] struct {
	key   K
	value V
}

// NewMap returns an empty map of at most that many entries.
func NewMap[K comparable, V any](most int) *Map[K, V] {
	return &Map[K, V]{most: most, places: map[K]*Place[entry[K, V]]{}}
}

// Get returns the value of a key, and uses it.
func (m *Map[K, V]) Get(key K) (value V, known bool) {
	place, known := m.places[key]
	if known {
		m.pool.Use(place)
		value = place.Value.value
	}
	return value, known
}

// Put sets the value of a key. An existing entry keeps its account.
func (m *Map[K, V]) Put(account string, key K, value V) {
	if place := m.places[key]; place != nil {
		m.pool.Use(place)
		place.Value.value = value
		return
	}
	if m.pool.Len >= m.most {
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

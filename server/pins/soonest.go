package pins

import "time"

// timed is a ticket in a heap.
type timed interface {
	when() time.Time
	moved(to int) // tells it its index
}

// soonest is a heap of tickets, the one whose time comes first in front. It implements heap.Interface.
type soonest[T timed] []T

func (s soonest[T]) Len() int           { return len(s) }
func (s soonest[T]) Less(i, j int) bool { return s[i].when().Before(s[j].when()) }

// Swap also tells the tickets their indexes.
func (s soonest[T]) Swap(i, j int) {
	s[i], s[j] = s[j], s[i]
	s[i].moved(i)
	s[j].moved(j)
}

// Push implements heap.Interface.
func (s *soonest[T]) Push(x any) {
	added := x.(T)
	added.moved(len(*s))
	*s = append(*s, added)
}

// Pop implements heap.Interface.
func (s *soonest[T]) Pop() any {
	last := len(*s) - 1
	x, none := (*s)[last], *new(T)
	(*s)[last] = none
	*s = (*s)[:last]
	return x
}

// first returns the ticket whose time comes first, the zero value if there is none.
func (s soonest[T]) first() (t T) {
	if len(s) > 0 {
		t = s[0]
	}
	return t
}

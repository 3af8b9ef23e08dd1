package pins

// dueHeap are the tickets of a queue that are in the store. It implements heap.Interface, the one that is due first in front.
type dueHeap []*retainedTicket

func (d dueHeap) Len() int           { return len(d) }
func (d dueHeap) Less(i, j int) bool { return d[i].due.Before(d[j].due) }

// Swap also updates the places of the tickets.
func (d dueHeap) Swap(i, j int) {
	d[i], d[j] = d[j], d[i]
	d[i].place, d[j].place = i, j
}

// Push implements heap.Interface.
func (d *dueHeap) Push(x any) {
	k := x.(*retainedTicket)
	k.place = len(*d)
	*d = append(*d, k)
}

// Pop implements heap.Interface.
func (d *dueHeap) Pop() any {
	last := len(*d) - 1
	k := (*d)[last]
	(*d)[last] = nil
	*d = (*d)[:last]
	return k
}

// first returns the ticket that is due first, nil if there is none.
func (d dueHeap) first() *retainedTicket {
	if len(d) == 0 {
		return nil
	}
	return d[0]
}

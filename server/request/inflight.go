package request

import (
	"net/http"
	"sync"
)

// Inflight counts the memory of request bodies, and of answers that are held, for all clients together and for each.
type Inflight struct {
	most      int64 // the limit of all clients together
	perClient int64 // the limit of each client

	outgrown outgrown

	mu      sync.Mutex // guards what follows
	total   int64
	clients map[string]int64 // bytes of each client that holds any
}

// NewInflight allows all clients most bytes and each of them a quarter of that, so
// that four greedy ones are needed to turn the others away. One body of the largest
// size always fits, with the half that its last step takes besides (see bodyBuffer).
func NewInflight(most, largest int64) *Inflight {
	one := largest + 1 + (largest+2)/2
	return &Inflight{most: max(most, one), perClient: max(most/4, one), clients: map[string]int64{}}
}

// Reservation is the part of an inflight account that one turn holds. It belongs to
// the goroutine of its turn. The zero value holds nothing and can't grow.
type Reservation struct {
	account  *Inflight
	Client   string // whose bytes these are
	reserved int64
}

// Beside returns a reservation of the same client, which holds nothing yet.
func (r *Reservation) Beside() Reservation { return Reservation{account: r.account, Client: r.Client} }

// Grow adds n bytes. If they exceed a limit, it adds none and returns the error for the client.
func (r *Reservation) Grow(n int64) error {
	a := r.account
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.clients[r.Client]+n > a.perClient:
		return overloaded("Too many request bytes of this client in flight.")
	case a.total+n > a.most:
		return overloaded("Too many request bytes in flight.")
	}
	a.total += n
	a.clients[r.Client] += n
	r.reserved += n
	return nil
}

// ShrinkTo gives back all but n bytes. It does nothing if no more than n are held.
func (r *Reservation) ShrinkTo(n int64) {
	if r.reserved <= n {
		return
	}
	a := r.account
	a.mu.Lock()
	defer a.mu.Unlock()
	back := r.reserved - n
	r.reserved = n
	a.total -= back
	if a.clients[r.Client] -= back; a.clients[r.Client] == 0 {
		delete(a.clients, r.Client)
	}
}

// Held returns how many bytes of requests are held, and for how many clients.
func (i *Reader) Held() (bytes int64, clients int) {
	a := i.inflight
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.total, len(a.clients)
}

// GiveBack gives back all bytes. Further calls do nothing.
func (r *Reservation) GiveBack() { r.ShrinkTo(0) }

// Reserve returns the reservation of a client's request. It holds nothing yet.
func (i *Reader) Reserve(r *http.Request, tenant string) Reservation {
	return Reservation{account: i.inflight, Client: clientOf(r, tenant)}
}

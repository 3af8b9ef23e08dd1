package server

import (
	"io"
	"math/bits"
	"sync"
)

// inflight counts the memory of request bodies, for all clients together and for each.
type inflight struct {
	most      int64 // the limit of all clients together
	perClient int64 // the limit of each client

	outgrown outgrown

	mu      sync.Mutex // guards what follows
	total   int64
	clients map[string]int64 // bytes of each client that holds any
}

// newInflight allows all clients most bytes and each of them a quarter of that, so
// that four greedy ones are needed to turn the others away. One body of the largest
// size always fits, with the half that its last step takes besides (see bodyBuffer).
func newInflight(most, largest int64) *inflight {
	one := largest + 1 + (largest+2)/2
	return &inflight{most: max(most, one), perClient: max(most/4, one), clients: map[string]int64{}}
}

// reservation is the part of an inflight account that one turn holds. It belongs to
// the goroutine of its turn. The zero value holds nothing and can't grow.
type reservation struct {
	account  *inflight
	client   string
	reserved int64
}

// grow adds n bytes. If they exceed a limit, it adds none and returns the error for the client.
func (r *reservation) grow(n int64) error {
	a := r.account
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.clients[r.client]+n > a.perClient:
		return unavailable("overloaded", "Too many request bytes of this client in flight.")
	case a.total+n > a.most:
		return unavailable("overloaded", "Too many request bytes in flight.")
	}
	a.total += n
	a.clients[r.client] += n
	r.reserved += n
	return nil
}

// shrinkTo gives back all but n bytes. It does nothing if no more than n are held.
func (r *reservation) shrinkTo(n int64) {
	if r.reserved <= n {
		return
	}
	a := r.account
	a.mu.Lock()
	defer a.mu.Unlock()
	back := r.reserved - n
	r.reserved = n
	a.total -= back
	if a.clients[r.client] -= back; a.clients[r.client] == 0 {
		delete(a.clients, r.client)
	}
}

// giveBack gives back all bytes. Further calls do nothing.
func (r *reservation) giveBack() { r.shrinkTo(0) }

// firstStep is the most memory that a body gets for its first byte.
const firstStep = 8 << 10

// bodyBuffer is a body while it arrives. Its memory grows by doubling and ends at
// exactly size, so that it never has more than firstStep or twice what has arrived;
// for the moment of a step it has half of the new memory besides.
type bodyBuffer struct {
	size  int64 // the most bytes that are read
	share *reservation
	bytes []byte
	whole *[]byte // the memory of bytes, if outgrown has lent it
}

// readFrom reads n bytes or some more. It returns io.EOF at the end of the body or of
// size, and the error of the reservation if there is no memory to be had.
func (b *bodyBuffer) readFrom(body io.Reader, n int) error {
	for until := len(b.bytes) + n; len(b.bytes) < until; {
		if int64(len(b.bytes)) == b.size {
			return io.EOF
		}
		if len(b.bytes) == cap(b.bytes) {
			if err := b.step(); err != nil {
				return err
			}
		}
		read, err := body.Read(b.bytes[len(b.bytes):cap(b.bytes)])
		b.bytes = b.bytes[:len(b.bytes)+read]
		if err != nil {
			return err
		}
	}
	return nil
}

// step moves what has arrived to the next larger memory of size, size/2, size/4 …
func (b *bodyBuffer) step() error {
	next := b.size
	for half := (next + 1) / 2; next > firstStep && half > int64(cap(b.bytes)); half = (next + 1) / 2 {
		next = half
	}
	if err := b.share.grow(next); err != nil {
		return err
	}
	var lent *[]byte
	var larger []byte
	if next < b.size {
		lent = b.share.account.outgrown.lend(next)
		larger = (*lent)[:len(b.bytes):next]
	} else {
		larger = make([]byte, len(b.bytes), next) // the last memory is not lent, because the request keeps it
	}
	copy(larger, b.bytes)
	if b.whole != nil {
		b.share.account.outgrown.take(b.whole)
	}
	b.bytes, b.whole = larger, lent
	b.share.shrinkTo(next)
	return nil
}

// outgrown lends the buffers that bodies outgrow while they arrive, which are all but a body's last. Without it a body of 256 KiB would leave
// as much garbage. A lent buffer is up to a quarter larger than the bytes that are counted for it.
type outgrown [4 * outgrownClasses]sync.Pool

// outgrownClasses is how many powers of two there are: up to 4 MiB, which bodies of 8 outgrow.
const outgrownClasses = 22

// lend returns a buffer of n bytes or some more.
func (o *outgrown) lend(n int64) *[]byte {
	class, size := classOf(n)
	if class < len(o) {
		if lent, _ := o[class].Get().(*[]byte); lent != nil {
			return lent
		}
	}
	memory := make([]byte, size)
	return &memory
}

// take takes a buffer back that is not used any more.
func (o *outgrown) take(memory *[]byte) {
	if class, size := classOf(int64(len(*memory))); class < len(o) && size == int64(len(*memory)) {
		o[class].Put(memory)
	}
}

// classOf rounds a size up to a quarter of the power of two below it, so that bodies of similar sizes share buffers.
func classOf(n int64) (class int, size int64) {
	power := max(bits.Len64(uint64(n-1)), 3) - 1 // 2^power < n <= 2^(power+1)
	quarter := int64(1) << (power - 2)
	steps := (n - int64(1)<<power + quarter - 1) / quarter
	return 4*power + int(steps) - 1, int64(1)<<power + steps*quarter
}

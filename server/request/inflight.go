package request

import (
	"io"
	"math/bits"
	"net/http"
	"sync"
	"time"

	"carryover/account"
)

// Inflight counts the memory of request bodies, and of held answers, for all accounts together and for each.
type Inflight struct {
	most       int64 // the limit of all accounts together
	perAccount int64 // the limit of each account
	stalls     time.Duration

	outgrown outgrown

	mu       sync.Mutex // guards the rest
	total    int64
	accounts map[string]int64           // bytes of each account that holds any
	arriving account.Pool[*Reservation] // of bodies that arrive, weighed by bytes
}

// NewInflight allows all accounts most bytes and each of them a quarter, so that four greedy ones are needed to turn the others away. One
// body of the largest size always fits, with the half that its last step takes besides (see bodyBuffer). If others need the memory of an
// arriving body, 10 KiB of it may take a hundredth of the time limit for the whole.
func NewInflight(most, largest int64, bodyTimeout time.Duration) *Inflight {
	one := largest + 1 + (largest+2)/2
	return &Inflight{most: max(most, one), perAccount: max(most/4, one), stalls: bodyTimeout / 100, accounts: map[string]int64{}}
}

// Reservation is the memory in flight of one turn. It belongs to the goroutine of its turn. The zero value holds nothing and can't grow.
type Reservation struct {
	inflight *Inflight
	Account  string // for whom the bytes count
	reserved int64
	arriving *arriving // while the body arrives
}

// arriving is guarded by the lock of Inflight.
type arriving struct {
	place *account.Place[*Reservation] // nil once it has given way
	moved time.Time                    // when its last bytes came
	stop  func()                       // ends the wait for more bytes
}

// Beside returns an empty reservation of the same account.
func (r *Reservation) Beside() Reservation {
	return Reservation{inflight: r.inflight, Account: r.Account}
}

// Begin notes that a body arrives, until End. If others need its memory while it stalls, stop is called, and Moved and Grow return the error
// for the client from then on.
func (r *Reservation) Begin(stop func()) {
	i := r.inflight
	i.mu.Lock()
	defer i.mu.Unlock()
	r.arriving = &arriving{i.arriving.Add(r.Account, r.reserved, r), time.Now(), stop}
}

// Moved notes that more of the body has come.
func (r *Reservation) Moved() error {
	i := r.inflight
	i.mu.Lock()
	defer i.mu.Unlock()
	if r.gaveWay() {
		return errStalled
	}
	r.arriving.moved = time.Now()
	i.arriving.Use(r.arriving.place)
	return nil
}

// End notes that the body is complete or given up.
func (r *Reservation) End() {
	i := r.inflight
	i.mu.Lock()
	defer i.mu.Unlock()
	if !r.gaveWay() {
		i.arriving.Remove(r.arriving.place)
		r.arriving = nil
	}
}

func (r *Reservation) gaveWay() bool { return r.arriving != nil && r.arriving.place == nil }

var errStalled = overloaded("Too many request bytes in flight, and this body arrived slowly.")

// Grow adds n bytes. If they exceed a limit, it adds none and returns the error for the client.
func (r *Reservation) Grow(n int64) error {
	i := r.inflight
	i.mu.Lock()
	defer i.mu.Unlock()
	if r.gaveWay() {
		return errStalled
	}
	for i.accounts[r.Account]+n > i.perAccount {
		if !i.makeRoom(i.arriving.Of(r.Account), r) {
			return overloaded("Too many request bytes of this client in flight.")
		}
	}
	for i.total+n > i.most {
		if !i.makeRoom(i.arriving.Most(), r) {
			return overloaded("Too many request bytes in flight.")
		}
	}
	i.add(r, n)
	return nil
}

// makeRoom stops the body of a share, other than r's, that stalls for longest, if there is one. The caller holds i.mu.
func (i *Inflight) makeRoom(share *account.Share[*Reservation], r *Reservation) bool {
	if share == nil {
		return false
	}
	longest := share.Oldest().Value
	if longest == r || time.Since(longest.arriving.moved) < i.stalls {
		return false
	}
	i.arriving.Remove(longest.arriving.place)
	longest.arriving.place = nil
	i.add(longest, -longest.reserved)
	longest.arriving.stop()
	return true
}

// add needs i.mu.
func (i *Inflight) add(r *Reservation, n int64) {
	r.reserved += n
	i.total += n
	if i.accounts[r.Account] += n; i.accounts[r.Account] == 0 {
		delete(i.accounts, r.Account)
	}
	if r.arriving != nil && r.arriving.place != nil {
		i.arriving.Weigh(r.arriving.place, r.reserved)
	}
}

// ShrinkTo gives back all but n bytes. It does nothing if no more than n are held.
func (r *Reservation) ShrinkTo(n int64) {
	i := r.inflight
	if i == nil {
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if r.reserved > n {
		i.add(r, n-r.reserved)
	}
}

// Held returns how many bytes of requests are held, and for how many accounts.
func (i *Reader) Held() (bytes int64, accounts int) {
	a := i.inflight
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.total, len(a.accounts)
}

// GiveBack gives back all bytes. Further calls do nothing.
func (r *Reservation) GiveBack() { r.ShrinkTo(0) }

// Reserve returns an empty reservation for a client's request.
func (i *Reader) Reserve(r *http.Request, tenant string) Reservation {
	return Reservation{inflight: i.inflight, Account: i.accountOf(r, tenant)}
}

const firstStep = 8 << 10

// bodyBuffer is a body while it arrives. Its memory grows by doubling and ends at exactly size, so it never has more than firstStep or twice
// the bytes that have arrived; during a step it has half of the new memory besides.
type bodyBuffer struct {
	size    int64 // the most bytes that are read
	share   *Reservation
	besides int64 // bytes of the share for another purpose
	bytes   []byte
	whole   *[]byte // the memory of bytes, if outgrown has lent it
}

// readFrom returns io.EOF at the end of the body or of size, and the reservation's error if there is no memory.
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

func (b *bodyBuffer) step() error {
	next := b.size
	for half := (next + 1) / 2; next > firstStep && half > int64(cap(b.bytes)); half = (next + 1) / 2 {
		next = half
	}
	if err := b.share.Grow(next); err != nil {
		return err
	}
	var lent *[]byte
	var larger []byte
	if next < b.size {
		lent = b.share.inflight.outgrown.lend(next)
		larger = (*lent)[:len(b.bytes):next]
	} else {
		larger = make([]byte, len(b.bytes), next) // the last memory is not lent, because the request keeps it
	}
	copy(larger, b.bytes)
	if b.whole != nil {
		b.share.inflight.outgrown.take(b.whole)
	}
	b.bytes, b.whole = larger, lent
	b.share.ShrinkTo(b.besides + next)
	return nil
}

// outgrown lends the buffers that bodies outgrow while they arrive, all but a body's last. Without it a body of 256 KiB would leave as much
// garbage. A lent buffer is up to a quarter larger than the bytes that are counted for it.
type outgrown [4 * outgrownClasses]sync.Pool

// outgrownClasses is the number of powers of two: up to 4 MiB, which bodies of 8 outgrow.
const outgrownClasses = 22

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

package request

import (
	"net/http"
	"sync"
	"time"

	"carryover/account"
)

// Inflight counts the memory of request bodies, and of answers that are held, for all accounts together and for each.
type Inflight struct {
	most       int64 // the limit of all accounts together
	perAccount int64 // the limit of each account
	stalls     time.Duration

	outgrown outgrown

	mu       sync.Mutex // guards what follows
	total    int64
	accounts map[string]int64           // bytes of each account that holds any
	arriving account.Pool[*Reservation] // those of bodies that arrive, weighed by bytes
}

// NewInflight allows all accounts most bytes and each of them a quarter of that, so
// that four greedy ones are needed to turn the others away. One body of the largest
// size always fits, with the half that its last step takes besides (see bodyBuffer).
// Where others need the memory of a body, 10 KiB of it may take a hundredth of what
// the whole may take.
func NewInflight(most, largest int64, bodyTimeout time.Duration) *Inflight {
	one := largest + 1 + (largest+2)/2
	return &Inflight{most: max(most, one), perAccount: max(most/4, one), stalls: bodyTimeout / 100, accounts: map[string]int64{}}
}

// Reservation is the memory in flight that one turn holds. It belongs to
// the goroutine of its turn. The zero value holds nothing and can't grow.
type Reservation struct {
	inflight *Inflight
	Account  string // for whom the bytes count
	reserved int64
	arriving *arriving // while the body arrives
}

// arriving is a body that arrives. Inflight's lock guards it.
type arriving struct {
	place *account.Place[*Reservation] // nil once it has given way
	moved time.Time                    // when the last of it came
	stop  func()                       // ends the wait for more of it
}

// Beside returns a reservation of the same account, which holds nothing yet.
func (r *Reservation) Beside() Reservation {
	return Reservation{inflight: r.inflight, Account: r.Account}
}

// Begin notes that a body arrives, until End. Where another needs its memory while it stalls, stop is called, and no more of it is
// counted: Moved and Grow return the error for the client then.
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
		return errStalled()
	}
	r.arriving.moved = time.Now()
	i.arriving.Use(r.arriving.place)
	return nil
}

// End notes that nothing more of the body is waited for.
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

func errStalled() error {
	return overloaded("Too many request bytes in flight, and this body arrived slowly.")
}

// Grow adds n bytes. If they exceed a limit, it adds none and returns the error for the client.
func (r *Reservation) Grow(n int64) error {
	i := r.inflight
	i.mu.Lock()
	defer i.mu.Unlock()
	if r.gaveWay() {
		return errStalled()
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

// makeRoom has the body give way that stalls for longest, of a share, if there is another than that of r. The caller holds i.mu.
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

// add changes what a reservation holds. The caller holds i.mu.
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

// Reserve returns the reservation of a client's request. It holds nothing yet.
func (i *Reader) Reserve(r *http.Request, tenant string) Reservation {
	return Reservation{inflight: i.inflight, Account: i.accountOf(r, tenant)}
}

package request

import (
	"io"
	"math/bits"
	"sync"
)

// firstStep is the most memory that a body gets for its first byte.
const firstStep = 8 << 10

// bodyBuffer is a body while it arrives. Its memory grows by doubling and ends at
// exactly size, so that it never has more than firstStep or twice what has arrived;
// for the moment of a step it has half of the new memory besides.
type bodyBuffer struct {
	size    int64 // the most bytes that are read
	share   *Reservation
	besides int64 // bytes that the share holds for something else
	bytes   []byte
	whole   *[]byte // the memory of bytes, if outgrown has lent it
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

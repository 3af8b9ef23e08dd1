package sse

import (
	"slices"
	"sync"
)

const (
	// firstBuffer suffices while every read fits: a vLLM chunk has 200 to 400 bytes.
	firstBuffer = 1 << 10
	// smallBuffer is for idle streams that have had a larger read. With the head and end of a chunk (RFC 9112, 7.1) it fits into the 4 KiB
	// that net/http's server writes at once: one write instead of two.
	smallBuffer = 4<<10 - 16
	// minRead is the least space for a read.
	minRead = 512
	// calmReads in a row have to fit into smallBuffer before a stream gives back a larger buffer. Streams with only larger events (log
	// probabilities) keep theirs.
	calmReads = 4
	// keepBuffer is the size above which a stream gives its buffer back at once. Only prompt ids (first chunk) and transfer parameters (last
	// chunk) need it: 64 kB for 13,000 ids, but 2 kB for a token's 20 log probabilities.
	keepBuffer = 32 << 10
	// youngReads is how many first reads give back any larger buffer that they did not fill, because only the first chunk has the prompt's
	// ids.
	youngReads = 8
	// widening: a gap grows by one extra byte for every widening bytes that move.
	widening = 8
)

// buffer holds bytes of the stream in their order:
//
//	b[:ready]         may go out with the next write
//	b[ready:heldEnd]  held back
//	b[next:end]       not decided
//
// ready <= heldEnd <= next <= end. Most decisions remove bytes, so one array serves for all three, and everything that may go out is one
// slice. Held bytes move only if a cut or drop has left a gap before them. An edit that needs more than the gap first moves the undecided
// bytes away.
type buffer struct {
	b                         []byte
	ready, heldEnd, next, end int
	calm                      int  // reads in a row that fitted into smallBuffer
	full                      bool // the last read filled its space
	reads                     int  // reads so far
	widened                   bool // an edit has needed more than the gap
	memory                    *Memory
}

// spare returns the space for the next read. Call it after sent.
func (b *buffer) spare() []byte {
	size := max(len(b.b), firstBuffer)
	switch {
	case size < smallBuffer && (b.full || !b.fits(size)):
		size = smallBuffer
	case !b.fits(size):
		size *= 2
	case (size > keepBuffer || size > firstBuffer && b.reads < youngReads && !b.full) && b.fits(firstBuffer):
		size = firstBuffer
	case size > smallBuffer && b.fits(smallBuffer) && (b.calm >= calmReads || size > keepBuffer):
		size = smallBuffer
	}
	if size != len(b.b) {
		old := b.b
		b.b = b.memory.take(size)
		copy(b.b, old[:b.end])
		b.memory.giveBack(old)
	}
	return b.b[b.end:b.offered(size)]
}

// free gives the array back. Nothing may use the buffer's slices afterwards.
func (b *buffer) free() {
	b.memory.giveBack(b.b)
	*b = buffer{memory: b.memory}
}

func (b *buffer) fits(size int) bool { return b.offered(size)-b.end >= minRead }

// offered returns the end of the space for reads. Once an edit has needed more than the gap, reads leave a share free; otherwise edits of a
// fast stream would need an ever larger buffer.
func (b *buffer) offered(size int) int {
	if b.widened {
		size -= size / widening
	}
	return size
}

func (b *buffer) filled(n int) {
	b.end += n
	b.reads++
	b.full = b.end == b.offered(len(b.b))
	b.calm++
	if b.end > smallBuffer {
		b.calm = 0
	}
}

func (b *buffer) rest() []byte { return b.b[b.next:b.end] }

func (b *buffer) hold(n int) {
	if b.heldEnd != b.next {
		copy(b.b[b.heldEnd:], b.b[b.next:b.next+n])
	}
	b.heldEnd += n
	b.next += n
}

func (b *buffer) drop(n int) { b.next += n }

func (b *buffer) insert(p []byte) {
	if missing := len(p) - (b.next - b.heldEnd); missing > 0 {
		b.widen(missing)
	}
	b.heldEnd += copy(b.b[b.heldEnd:], p)
}

// widen enlarges the gap by missing bytes and a share of the bytes that it moves, so that many small edits of a long read cost few moves.
func (b *buffer) widen(missing int) {
	b.widened = true
	by := missing + len(b.rest())/widening
	if b.end+by <= len(b.b) {
		copy(b.b[b.next+by:], b.rest())
	} else {
		grown := make([]byte, max(2*len(b.b), b.end+by))
		copy(grown, b.b[:b.heldEnd])
		copy(grown[b.next+by:], b.rest())
		b.memory.giveBack(b.b)
		b.b = grown
	}
	b.next += by
	b.end += by
}

func (b *buffer) takeBack(n int) { b.heldEnd -= n }

func (b *buffer) letGo() { b.ready = b.heldEnd }

func (b *buffer) heldBytes() int { return b.heldEnd - b.ready }

// sent removes the bytes that have gone out, and closes the gaps.
func (b *buffer) sent() {
	if b.ready == 0 && b.heldEnd == b.next {
		return
	}
	kept := copy(b.b, b.b[b.ready:b.heldEnd])
	rest := copy(b.b[kept:], b.b[b.next:b.end])
	b.ready, b.heldEnd, b.next, b.end = 0, kept, kept, kept+rest
}

// pass releases the first n bytes of the rest, before all held bytes but the first ones.
func (b *buffer) pass(n, first int) {
	b.hold(n)
	b.ready += first
	held := b.b[b.ready:b.heldEnd]
	slices.Reverse(held[:len(held)-n])
	slices.Reverse(held[len(held)-n:])
	slices.Reverse(held)
	b.ready += n
}

// Memory reuses the arrays of ended streams, in the two usual sizes. The garbage collector takes unused ones within two cycles. It is safe for
// concurrent use; the zero value is ready, and a nil Memory keeps nothing.
type Memory struct{ first, small sync.Pool }

// take returns an array with arbitrary content.
func (m *Memory) take(size int) []byte {
	if m != nil {
		switch size {
		case firstBuffer:
			if array, ok := m.first.Get().(*[firstBuffer]byte); ok {
				return array[:]
			}
		case smallBuffer:
			if array, ok := m.small.Get().(*[smallBuffer]byte); ok {
				return array[:]
			}
		}
	}
	return make([]byte, size)
}

// giveBack takes an array of any size. Nothing may use it afterwards.
func (m *Memory) giveBack(array []byte) {
	if m == nil {
		return
	}
	switch len(array) {
	case firstBuffer:
		m.first.Put((*[firstBuffer]byte)(array))
	case smallBuffer:
		m.small.Put((*[smallBuffer]byte)(array))
	}
}

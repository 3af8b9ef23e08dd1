package sse

const (
	// firstBuffer is what a stream holds whose every read has fitted into it: a vLLM chunk has 200 to 400 bytes.
	firstBuffer = 1 << 10
	// smallBuffer is what an idle stream holds that has got more at once. It leaves room for the head and the end of a chunk
	// (RFC 9112, 7.1) in the 4 KiB that net/http's server writes at once: a read of 4 KiB takes one write then, and not two.
	smallBuffer = 4<<10 - 16
	// minRead is the least room that is offered to a read.
	minRead = 512
	// calmReads is the number of reads in a row that must have fitted into smallBuffer before a buffer that has grown is
	// given back: streams whose every event is larger (log probabilities) keep theirs.
	calmReads = 4
	// keepBuffer is the size above which a buffer is given back at once. Only prompt ids (first chunk) and transfer
	// parameters (last chunk) make such events, so that growing again is rare: 20 log probabilities of a token take 2 kB.
	// A stream that falls silent behind its first chunk would hold all of it otherwise, 64 kB for 13,000 ids.
	keepBuffer = 32 << 10
	// youngReads is the number of reads within which any buffer that has grown, and was not filled, is given back: the prompt's ids come with the
	// first chunk alone, and a stream that is silent behind it would hold their room.
	youngReads = 8
	// widening is the part of the rest, one in so many bytes, by which a gap is made larger than it has to be.
	widening = 8
)

// buffer holds, in the order of the stream, what may go out, what is held back and what is not decided yet:
//
//	b[:ready]      may go out with the next write
//	b[ready:kept]  held back
//	b[next:end]    not decided
//
// ready <= kept <= next <= end, because deciding mostly removes bytes. So one array serves for all, bytes that stay
// are moved only behind a gap that a cut or a drop has left, and everything that may go out is one slice. An edit that
// adds more than the gap can take moves the rest away first.
type buffer struct {
	b                         []byte
	ready, heldEnd, next, end int
	calm                      int  // reads in a row that fitted into smallBuffer
	full                      bool // the last read took all that it was offered
	reads                     int  // so far
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

// free gives the array back, at the end of the stream. Nothing of it may be used any more.
func (b *buffer) free() {
	b.memory.giveBack(b.b)
	*b = buffer{memory: b.memory}
}

// fits reports whether a buffer of this size has room for a read.
func (b *buffer) fits(size int) bool { return b.offered(size)-b.end >= minRead }

// offered returns how far a buffer of this size is filled by reads. Reads that fill all of it would leave the edits of a
// fast stream no room but in an ever larger one.
func (b *buffer) offered(size int) int {
	if b.widened {
		size -= size / widening
	}
	return size
}

// filled takes over n bytes that were read into room.
func (b *buffer) filled(n int) {
	b.end += n
	b.reads++
	b.full = b.end == b.offered(len(b.b))
	b.calm++
	if b.end > smallBuffer {
		b.calm = 0
	}
}

// rest returns the bytes that are not decided.
func (b *buffer) rest() []byte { return b.b[b.next:b.end] }

// hold holds back the first n of the rest.
func (b *buffer) hold(n int) {
	if b.heldEnd != b.next {
		copy(b.b[b.heldEnd:], b.b[b.next:b.next+n])
	}
	b.heldEnd += n
	b.next += n
}

// drop forgets the first n of the rest.
func (b *buffer) drop(n int) { b.next += n }

// insert holds back bytes that are not in the stream.
func (b *buffer) insert(p []byte) {
	if missing := len(p) - (b.next - b.heldEnd); missing > 0 {
		b.widen(missing)
	}
	b.heldEnd += copy(b.b[b.heldEnd:], p)
}

// widen makes the gap before the rest larger, by missing bytes at least. It makes it larger than that by a share of what
// it moves, so that many small edits in one long read cost no more than a few moves.
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

// takeBack forgets the last n bytes that are held back.
func (b *buffer) takeBack(n int) { b.heldEnd -= n }

// letGo lets go out what is held back.
func (b *buffer) letGo() { b.ready = b.heldEnd }

// heldBytes returns the number of bytes held back.
func (b *buffer) heldBytes() int { return b.heldEnd - b.ready }

// sent forgets what may go out and closes the gaps.
func (b *buffer) sent() {
	if b.ready == 0 && b.heldEnd == b.next {
		return
	}
	kept := copy(b.b, b.b[b.ready:b.heldEnd])
	rest := copy(b.b[kept:], b.b[b.next:b.end])
	b.ready, b.heldEnd, b.next, b.end = 0, kept, kept, kept+rest
}

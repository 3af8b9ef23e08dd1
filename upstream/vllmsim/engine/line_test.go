package engine

import "testing"

func TestLine_ThoseThatWereInStandAhead(t *testing.T) {
	var l line
	a := l.join(false)
	b, c := l.join(true), l.join(true)
	d := l.join(false)
	for n, want := range []*waiter{b, c, a, d} {
		if !l.isFirst(want) {
			t.Fatalf("place %d is another's", n)
		}
		l.leave(want)
	}
}

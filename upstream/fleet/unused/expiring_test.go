package unused

import (
	"testing"
	"time"
)

// However many answers there are, it takes the same memory.
func TestExpiringPins_AreBounded(t *testing.T) {
	const ttl = 100 * time.Second
	now := time.Now()
	l := New(Config{
		Known: true, Gone: func() bool { return false }, TTL: func() time.Duration { return ttl },
		Now: func() time.Time { return now }, Born: now,
	})
	for range 100_000 {
		l.AddExpiring(1, now)
		now = now.Add(10 * time.Millisecond)
	}
	if n := len(l.expiring.tokens); n > ExpirySteps+2 {
		t.Errorf("%d steps are kept, want %d", n, ExpirySteps+2)
	}
	if got, all := l.Pinned().Besides, int(ttl/(10*time.Millisecond)); got < all || got > all+all/ExpirySteps*2 {
		t.Errorf("got %d tokens, want %d and two steps at most", got, all)
	}
}

package request_test

import (
	"testing"

	"carryover/server/request"
)

func TestOutgrown_LendsWhatFits(t *testing.T) {
	for n := int64(8 << 10); n < 5<<20; n = n*17/16 + 1 {
		lent, again := request.LendTwice(n)
		if int64(lent) < n || int64(lent) > n+n/4+1 || again != lent {
			t.Fatalf("%d bytes: lends %d, and then %d", n, lent, again)
		}
	}
}

package pins

import (
	"testing"

	"carryover/convcache"
)

// bytesOf are ids that take so much of a memory.
type bytesOf struct {
	noIDs
	n    int
	used *int64
}

func (b bytesOf) Len() int { return b.n }
func (b bytesOf) Free()    { *b.used -= int64(b.n) }

// What one account has handed back leaves others room, and what is due soonest stays.
func TestHandBackQueues_MakeRoomWithinTheAccountThatHasMost(t *testing.T) {
	h := newHandBackQueues(&Config{}, &Deps{}, nil)
	used := int64(0)
	for n, from := range []string{"quiet", "inventor", "inventor", "inventor", "quiet", "inventor"} {
		k := &retainedTicket{id: convcache.TicketID{byte(n)}, ids: bytesOf{n: 20, used: &used}, queue: &pairQueue{}, from: handBackOrigin{account: from}}
		used += 20
		h.add(k)
		h.makeRoom(func() (int64, int64) { return used, 100 })
	}
	for n, want := range []bool{true, true, true, false, true, false} {
		if _, kept := h.retained[convcache.TicketID{byte(n)}]; kept != want {
			t.Errorf("ticket %d is kept: %t, want %t", n, kept, want)
		}
	}
	if used != 80 || h.accounts.Len() != 4 {
		t.Errorf("%d bytes are used for %d tickets", used, h.accounts.Len())
	}
}

package e2e

import (
	"testing"
	"time"

	"carryover/cmd/carryover/testrig"
)

// waits waits until so many turns wait to begin, and so many for an instance.
func (o *operated) waits(t *testing.T, toBegin, forInstance int) {
	t.Helper()
	var begin, instance int
	if !testrig.Eventually(func() bool {
		begin, instance = o.proxy.Server.Waiting()
		return begin == toBegin && instance == forInstance
	}) {
		t.Fatalf("%d turns wait to begin and %d for an instance, want %d and %d", begin, instance, toBegin, forInstance)
	}
}

// await returns what a client sees first: nil for a stream, or an answer.
func await(t *testing.T, began chan *answered) *answered {
	t.Helper()
	select {
	case a := <-began:
		return a
	case <-time.After(time.Minute):
		t.Fatal("nothing after a minute")
		return nil
	}
}

package discovery_test

import (
	"context"
	"testing"

	"go.uber.org/goleak"

	"carryover/upstream"
	"carryover/upstream/discovery"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestStatic_SetsTheListOnceAndEndsWithTheContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	calls := 0
	err := discovery.Static{{Name: "p-1"}, {Name: "p-2"}}.Watch(ctx, func(all []upstream.Instance) {
		calls++
		if len(all) != 2 {
			t.Errorf("got %d instances, want 2", len(all))
		}
		cancel()
	})
	if err != nil || calls != 1 {
		t.Errorf("Watch = %v after %d calls, want nil after 1", err, calls)
	}
}

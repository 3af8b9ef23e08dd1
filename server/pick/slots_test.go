package pick

import (
	"strings"
	"testing"

	"carryover/upstream"
)

// The name of a model is a client's, and may be as long as a body.
func TestSlotClass_ALongModelNameIsBounded(t *testing.T) {
	if n := len(slotClass(upstream.RoleDecode, strings.Repeat("m", 1<<20), "", nil)); n > 2<<10 {
		t.Errorf("got %d bytes, want no copy of the name", n)
	}
	if slotClass(upstream.RoleDecode, "a", "", nil) == slotClass(upstream.RoleDecode, "b", "", nil) {
		t.Error("two models have one class")
	}
}

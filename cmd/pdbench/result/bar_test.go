package result

import (
	"strings"
	"testing"
)

func TestFailing_NamesWhatDoesNotHold(t *testing.T) {
	err := Failing([]Bar{Least("a", "turns", 1, 1), Most("b", "errors", 0, 0), Least("c", "turns", 0, 1), Most("d", "errors", 2, 1)})
	if err == nil || err.Error() != "FAILS  c: turns is 0, at least 1\nFAILS  d: errors is 2, at most 1" {
		t.Errorf("got %v", err)
	}
	if err := Failing([]Bar{Most("b", "errors", 0, 0)}); err != nil || !strings.HasPrefix(Least("a", "turns", 1, 1).String(), "holds") {
		t.Errorf("what holds fails: %v", err)
	}
}

package convcache

import (
	"testing"
	"time"
)

// report counts a run of operations: an 'x' is a failure, a dot is not.
func report(b *breaker, run string) {
	for _, c := range run {
		b.record(c == '.')
	}
}

func TestBreaker_OpensAfterFailures(t *testing.T) {
	for run, opens := range map[string]bool{
		"xxxx": false, "xxxxx": true, "xxxx.xxxx": false, "xxxx.xxxxx": true,
		"x.x.x.x.x.x.x.x.x.": false, "x.x.x.x.x.x.x.x.x.x": false,
		"x.x.x.x.x.x.x.x.x.x.": true, // half of twenty
		"..x.x.x.x.x.x.x.x.x.": false,
		"....................xxxx.xxxx.xxxx.xxxx.xxxx.xxxx.xxxx.": true, // half in the end
		"..x..x..x..x..x..x..x..x..x..x":                          false,
	} {
		b := newBreaker((&clock{}).now)
		report(b, run)
		if b.allows() == opens || (len(b.opened) == 1) != opens {
			t.Errorf("%s: allows: %t, told that it opened %d times, want %t", run, b.allows(), len(b.opened), opens)
		}
	}
}

func TestBreaker_ForgetsOldFailures(t *testing.T) {
	c := &clock{}
	b := newBreaker(c.now)
	report(b, "x.x.x.x.x.x.x.x.x.x")
	c.advance(time.Second)
	report(b, ".")
	if !b.allows() {
		t.Error("half of twenty failed, but not within a second, and it opened")
	}
	c.advance(time.Second - 1)
	report(b, "x.x.x.x.x.x.x.x.x.x")
	if b.allows() {
		t.Error("half of twenty failed within a second, and it did not open")
	}

	b = newBreaker(c.now)
	report(b, "....................") // a clock that was set back must not keep these in the window
	c.advance(-time.Hour)
	report(b, "x.x.x.x.x.x.x.x.x.x.")
	if b.allows() {
		t.Error("after the clock was set back half of twenty failed, and it did not open")
	}

	b = newBreaker(c.now)
	for range 4 {
		report(b, "x")
		c.advance(time.Hour)
	}
	report(b, "x")
	if b.allows() {
		t.Error("five in a row failed, however slowly, and it did not open")
	}
}

func TestBreaker_IsSetByATest(t *testing.T) {
	c := &clock{}
	b := newBreaker(c.now)
	b.set(true)
	report(b, "....................")
	if b.allows() {
		t.Error("what was sent before has closed it")
	}
	b.set(true)
	b.set(false)
	if !b.allows() {
		t.Error("closed, it allows nothing")
	}
	if len(b.opened) != 0 {
		t.Error("closed, it still tells that it opened")
	}
	report(b, "xxxx")
	if !b.allows() {
		t.Error("failures from before count after it was closed")
	}
	report(b, "x")
	if b.allows() || len(b.opened) != 1 {
		t.Error("five in a row failed after it was closed, and it did not open")
	}
}

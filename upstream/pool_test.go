package upstream

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// first picks the first candidate.
type first struct{}

func (first) Pick([]Candidate, string) int { return 0 }

func newTestPool(names ...string) *Pool {
	p := NewPool(first{}, first{})
	var all []Instance
	for _, name := range names {
		all = append(all, Instance{Name: name, BaseURL: "http://" + name, Role: RolePrefill})
	}
	p.Set(all)
	return p
}

func acquire(t *testing.T, p *Pool, exclude ...string) string {
	t.Helper()
	instance, release, err := p.Acquire(RolePrefill, "", exclude)
	if err != nil {
		t.Fatalf("Acquire: %v", err)
	}
	release()
	return instance.Name
}

func TestPool_NeverPicksAnExcludedInstance(t *testing.T) {
	p := newTestPool("a", "b")
	if got := acquire(t, p, "a"); got != "b" {
		t.Errorf("picked %s, want b", got)
	}
	if _, _, err := p.Acquire(RolePrefill, "", []string{"a", "b"}); !errors.Is(err, ErrNoInstance) {
		t.Errorf("all excluded: %v, want ErrNoInstance", err)
	}
	if _, _, err := p.Acquire(RoleDecode, "", nil); !errors.Is(err, ErrNoInstance) {
		t.Errorf("nobody of that role: %v, want ErrNoInstance", err)
	}
}

func TestPool_AvoidsARefusingInstanceForAMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newTestPool("a", "b")
		p.Report(p.Instances(RolePrefill)[0], true)
		if got := acquire(t, p); got != "b" {
			t.Errorf("picked %s while a refuses, want b", got)
		}
		if p.Reachable(RolePrefill, "a") || p.Up(RolePrefill) != 1 {
			t.Errorf("a is shown as reachable while it refuses")
		}
		if got := acquire(t, p, "b"); got != "a" {
			t.Errorf("picked %s with b excluded, want a although it is down", got)
		}
		<-time.After(downFor)
		if got := acquire(t, p); got != "a" {
			t.Errorf("picked %s after the pause, want a", got)
		}
	})
}

func TestPool_ProbeAndAnswerBringAnInstanceBack(t *testing.T) {
	p := newTestPool("a")
	a := p.Instances(RolePrefill)[0]
	p.setHealth(RolePrefill, "a", false)
	if p.Up(RolePrefill) != 1 {
		t.Error("an instance counts as down after one late probe")
	}
	p.setHealth(RolePrefill, "a", false)
	if p.Up(RolePrefill) != 0 {
		t.Error("an instance whose probes fail counts as up")
	}
	p.Report(a, false)
	if p.Up(RolePrefill) != 1 {
		t.Error("an instance that answers a leg counts as down")
	}
	p.Report(a, true)
	p.setHealth(RolePrefill, "a", true)
	if p.Up(RolePrefill) != 1 {
		t.Error("an instance whose probe is good counts as down")
	}
	p.Report(&Instance{Name: "gone", Role: RolePrefill}, true) // must not panic
}

func TestPool_KeepsLiveStateOfUnchangedInstances(t *testing.T) {
	p := newTestPool("a", "b")
	_, release, err := p.Acquire(RolePrefill, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	p.Report(p.Instances(RolePrefill)[0], true)
	p.Set([]Instance{*p.Instances(RolePrefill)[0], {Name: "c", Role: RolePrefill}})
	if p.Reachable(RolePrefill, "a") || !p.Reachable(RolePrefill, "c") || p.Reachable(RolePrefill, "b") {
		t.Error("want a still down, c new and up, b gone")
	}
	if n := p.find(RolePrefill, "a").inFlight; n != 1 {
		t.Errorf("in flight after a change = %d, want 1", n)
	}
	release()
	release() // a second release changes nothing
	if n := p.find(RolePrefill, "a").inFlight; n != 0 {
		t.Errorf("in flight after release = %d, want 0", n)
	}
}

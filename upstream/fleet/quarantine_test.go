package fleet

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"carryover/upstream"
)

func TestQuarantine_IsOfOneIncarnation(t *testing.T) {
	r := newRig(t)
	engines := r.named(upstream.RolePrefill, "a", "b")
	a, b := engines[0], engines[1]
	one := tells(a, "1")
	if a.Quarantined() || one.Quarantined() {
		t.Error("quarantined before anything happened")
	}
	one.Quarantine()
	if !a.Quarantined() || !one.Quarantined() {
		t.Error("not quarantined")
	}
	r.pass(readFor)
	if !a.Quarantined() {
		t.Error("while the incarnation is not known, the quarantine of the last one does not hold")
	}
	a.Refused()
	if !a.Quarantined() {
		t.Error("while nothing is read after a refusal, the quarantine of the last incarnation does not hold")
	}
	if b.Quarantined() || tells(b, "1").Quarantined() || b.Quarantined() {
		t.Error("another engine is quarantined")
	}
	two := tells(a, "2")
	if a.Quarantined() || two.Quarantined() {
		t.Error("the next incarnation is quarantined")
	}
	r.pass(readFor)
	if !a.Quarantined() {
		t.Error("while the incarnation is not known, the quarantine of an earlier one than the last does not hold")
	}
	tells(a, "2").Quarantine() // it was restarted, and is no better
	if !a.Quarantined() || !two.Quarantined() {
		t.Error("the second incarnation is not quarantined")
	}
}

// Two processes behind one address may tell their incarnations by turns.
func TestQuarantine_HoldsWhenTheIncarnationIsReadAgain(t *testing.T) {
	a := newRig(t).named(upstream.RolePrefill, "a")[0]
	tells(a, "1").Quarantine()
	if tells(a, "2").Quarantined() || !tells(a, "1").Quarantined() || !a.Quarantined() {
		t.Error("want the incarnation quarantined whenever it is read")
	}
}

func TestQuarantine_OfAnUnknownIncarnationHoldsUntilOneIsKnown(t *testing.T) {
	a := newRig(t).named(upstream.RolePrefill, "a")[0]
	a.Fresh().Quarantine()
	if !a.Quarantined() {
		t.Error("not quarantined")
	}
	tells(a, "1")
	if a.Quarantined() {
		t.Error("a known incarnation is quarantined for one that was not known")
	}
}

// Discovery may lose an instance for a moment; its incarnation is the same when it comes back.
func TestQuarantine_OutlivesItsEngine(t *testing.T) {
	r := newRig(t)
	engines := r.named(upstream.RolePrefill, "a", "b")
	all := r.instances
	tells(engines[0], "1").Quarantine()
	tells(engines[1], "1").Quarantine()
	tells(engines[1], "2") // and has been restarted since
	for range 2 {
		r.Set(nil)
		r.Set([]upstream.Instance{{Name: "a", BaseURL: "http://a", Role: upstream.RoleDecode}, {Name: "a", BaseURL: "http://other", Role: upstream.RolePrefill}})
		if r.Engine(upstream.RoleDecode, "a").Quarantined() || r.Engine(upstream.RolePrefill, "a").Quarantined() {
			t.Error("an engine of another role or URL is quarantined")
		}
		r.Set(all)
		a, b := r.Engine(upstream.RolePrefill, "a"), r.Engine(upstream.RolePrefill, "b")
		if a == engines[0] || !a.Quarantined() {
			t.Error("before anything was read the quarantine does not hold")
		}
		if b.Quarantined() {
			t.Error("the quarantine of an incarnation that was over holds")
		}
	}
	a := r.Engine(upstream.RolePrefill, "a")
	if !tells(a, "1").Quarantined() || !a.Quarantined() {
		t.Error("a quarantine is forgotten with its engine")
	}
	if tells(a, "2").Quarantined() || a.Quarantined() {
		t.Error("the next incarnation is quarantined")
	}
	if len(r.away) != 0 {
		t.Errorf("%d quarantines are kept for engines that are there", len(r.away))
	}
}

// An instance that is configured differently is another engine in the same incarnation.
func TestQuarantine_OutlivesAChangeOfConfiguration(t *testing.T) {
	r := newRig(t)
	tells(r.named(upstream.RolePrefill, "a")[0], "1").Quarantine()
	r.Set([]upstream.Instance{{Name: "b", BaseURL: "http://a", Role: upstream.RolePrefill}})
	if b := r.Engine(upstream.RolePrefill, "b"); !b.Quarantined() || !tells(b, "1").Quarantined() {
		t.Error("a quarantine is forgotten when the instance is named anew")
	}
}

// A leg may end after its engine has gone, and after it has come back.
func TestQuarantine_ThatComesLate(t *testing.T) {
	r := newRig(t)
	e := r.named(upstream.RolePrefill, "a")[0]
	s := tells(e, "1")
	r.Set(nil)
	s.Quarantine()
	r.Set(r.instances)
	if !r.Engine(upstream.RolePrefill, "a").Quarantined() {
		t.Error("the quarantine of an engine that was gone is forgotten")
	}
	for _, read := range []string{"", "1"} {
		r = newRig(t)
		s = tells(r.named(upstream.RolePrefill, "a")[0], "1")
		r.Set(nil)
		r.Set(r.instances)
		e = r.Engine(upstream.RolePrefill, "a")
		if read != "" {
			tells(e, read)
		}
		s.Quarantine()
		if !e.Quarantined() || !tells(e, "1").Quarantined() {
			t.Errorf("incarnation %q is read: the quarantine of an engine that has come back is forgotten", read)
		}
	}
}

func TestQuarantine_OfEnginesThatAreGoneIsBounded(t *testing.T) {
	r := newRig(t)
	instances := make([]upstream.Instance, maxAway+1)
	for i := range instances {
		name := fmt.Sprint("p", i)
		instances[i] = upstream.Instance{Name: name, BaseURL: "http://" + name, Role: upstream.RolePrefill}
		r.Set(instances[i : i+1])
		tells(r.Engine(upstream.RolePrefill, name), "1").Quarantine()
	}
	r.Set(nil)
	if len(r.away) != maxAway {
		t.Errorf("%d quarantines are kept, want %d", len(r.away), maxAway)
	}
	r.Set(instances)
	for i, instance := range instances {
		if got, want := r.Engine(upstream.RolePrefill, instance.Name).Quarantined(), i > 0; got != want {
			t.Errorf("%s: quarantined %t, want %t: the oldest goes", instance.Name, got, want)
		}
	}
}

// Two processes may be behind one address: while it is not known which answers, a quarantine of either holds.
func TestQuarantine_HoldsWhileNoIncarnationIsKnownAfterAnother(t *testing.T) {
	r := newRig(t)
	e := r.named(upstream.RolePrefill, "p")[0]
	quarantined := tells(e, "1")
	tells(e, "2")
	quarantined.Quarantine()
	if e.Quarantined() {
		t.Error("quarantined for another incarnation")
	}
	r.pass(time.Minute) // nothing counts any more
	if !e.Quarantined() {
		t.Error("not quarantined, though the incarnation that answers may be the quarantined one")
	}
}

// A quarantined engine is picked by turns that may read nothing of its prefix cache, and by no others, even if no other is left.
func TestPick_QuarantinedOnlyForThoseThatMay(t *testing.T) {
	r := newRig(t)
	e := r.named(upstream.RolePrefill, "a")[0]
	tells(e, "1").Quarantine()
	if picked, _, err := r.Pick(upstream.RolePrefill, Hint{}, nil); !errors.Is(err, upstream.ErrNoInstance) {
		t.Errorf("picked %v (%v), want none", picked, err)
	}
	picked, done, err := r.Pick(upstream.RolePrefill, Hint{AllowQuarantined: true}, nil)
	if err != nil || picked != e {
		t.Fatalf("picked %v (%v), want the quarantined one", picked, err)
	}
	done()
}

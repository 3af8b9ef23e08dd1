package fleet

import (
	"errors"
	"testing"
	"time"

	"carryover/upstream"
	"carryover/upstream/fleet/pairs"
)

// reconfigure changes the settings of all instances that the rig has.
func (r *rig) reconfigure(change func(*upstream.Instance)) {
	for i := range r.instances {
		change(&r.instances[i])
	}
	r.Set(r.instances)
}

// Settings are no part of what an engine is: its process has all the blocks that it had.
func TestConfigured_OtherSettingsKeepTheEngine(t *testing.T) {
	for name, change := range map[string]func(*upstream.Instance){
		"weight":    func(i *upstream.Instance) { i.Weight = 7 },
		"ttl":       func(i *upstream.Instance) { i.KVTTL = time.Hour },
		"kv host":   func(i *upstream.Instance) { i.KVHost = "10.0.0.7" },
		"kv port":   func(i *upstream.Instance) { i.KVPort = 7000 },
		"kv events": func(i *upstream.Instance) { i.KVEvents = "tcp://10.0.0.7:5557" },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			p, d := expiringRig(r, 10*time.Minute)
			for i := range r.instances {
				if r.instances[i].Role == upstream.RoleDecode {
					r.instances[i].KVTTL = 10 * time.Minute
				}
			}
			prove(p, d)
			r.reconfigure(change)
			e := r.Engine(upstream.RoleDecode, "d")
			want := r.instances[0]
			if want.Role != upstream.RoleDecode {
				want = r.instances[1]
			}
			if *e.Instance() != want {
				t.Errorf("it is configured as %+v, want %+v", *e.Instance(), want)
			}
			if e != d.Engine() || e.Last() != d {
				t.Errorf("the start is another: %t", e.Last() != d)
			}
			if got := p.PairWith(d).Begin(""); got != pairs.Proven {
				t.Errorf("the link is at %v, want Proven", got)
			}
		})
	}
}

// introducedPair returns two incarnations that have exchanged KV.
func (r *rig) introducedPair() (prefill, decode *Incarnation) {
	r.t.Helper()
	prefill, decode = r.incarnations()
	prefill.PairWith(decode).ExchangedKV()
	return prefill, decode
}

// expiringRig returns two incarnations that have exchanged KV; decode frees blocks after so long.
func expiringRig(r *rig, ttl time.Duration) (prefill, decode *Incarnation) {
	prefill, decode = r.introducedPair()
	instance := *decode.engine.Instance()
	instance.KVTTL = ttl
	decode.engine.settings.Store(&instance)
	return prefill, decode
}

// A pair that was stopped may have been for the settings.
func TestConfigured_AStoppedPairIsTriedAgain(t *testing.T) {
	for _, role := range []upstream.Role{upstream.RolePrefill, upstream.RoleDecode} {
		r := newRig(t)
		p, d := r.introducedPair()
		ps := p.PairWith(d)
		ps.Begin("")
		ps.End(pairs.Unanswered, "")
		ps.ReleaseFailed(true)
		if ps.Begin("") != pairs.NoReuse || ps.Releases() {
			t.Fatal("the pair is not stopped, so that this test shows nothing")
		}
		r.reconfigure(func(i *upstream.Instance) {
			if i.Role == role {
				i.KVHost = "10.0.0.7"
			}
		})
		if got := p.PairWith(d).Begin(""); got != pairs.Trial || !ps.Releases() {
			t.Errorf("%s is configured anew: %v, releases %t, want a trial and that it may", role, got, ps.Releases())
		}
	}
}

// A decode engine that was removed gets no turn, and its blocks can be had back while they may be pinned.
func TestDeparted_IsKeptWhileBlocksMayBePinned(t *testing.T) {
	r := newRig(t)
	p, d := expiringRig(r, 10*time.Minute)
	prefillOnly := []upstream.Instance{*p.Engine().Instance()}
	r.Set(prefillOnly)
	if _, _, err := r.Pick(upstream.RoleDecode, Hint{}, nil); !errors.Is(err, upstream.ErrNoInstance) || d.Engine().Reachable() {
		t.Errorf("it is picked: %v; or its tickets are used", err)
	}
	if got := r.Holders.Find("d", "1"); got != d || !d.Engine().Leaves() || d.Over() || len(r.Holders.All()) != 1 {
		t.Errorf("the holder of its blocks is %v of %d, want the start of before, which leaves", got, len(r.Holders.All()))
	}
	if r.Holders.Find("d", "2") != nil || r.Holders.Find("e", "1") != nil {
		t.Error("blocks of another start have a holder")
	}
	r.pass(10*time.Minute - time.Second)
	r.Set(prefillOnly)
	if d.Over() {
		t.Error("it is forgotten while blocks may be pinned")
	}
	r.pass(time.Second)
	r.Set(prefillOnly)
	if !d.Over() || len(r.Holders.All()) != 0 || r.Holders.Find("d", "1") != nil {
		t.Error("it is not forgotten when its last block has ended")
	}
}

// An attempt that ends behind the removal may leave blocks as late as that.
func TestDeparted_StaysForWhatItsAttemptsLeave(t *testing.T) {
	r := newRig(t)
	_, d := expiringRig(r, 10*time.Minute)
	_, done, err := r.Pick(upstream.RoleDecode, Hint{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Set(nil)
	r.pass(time.Hour)
	r.Set(nil)
	done()
	if d.Over() {
		t.Error("it was forgotten with an attempt in flight")
	}
	r.pass(9 * time.Minute)
	if r.Set(nil); d.Over() {
		t.Error("it is forgotten while what the attempt left may be pinned")
	}
	r.pass(time.Minute)
	if r.Set(nil); !d.Over() {
		t.Error("it is not forgotten")
	}
}

func TestDeparted_AreBounded(t *testing.T) {
	r := newRig(t)
	for i := range 2 * maxDeparted {
		r.Set(nil)
		tells(r.named(upstream.RoleDecode, "d"+string(rune('a'+i)))[0], "1")
		r.instances = nil
	}
	if n := len(r.Holders.departed); n != maxDeparted {
		t.Errorf("%d engines are kept, want %d", n, maxDeparted)
	}
}

package telemetry

import (
	"maps"
	"strings"
	"testing"

	"carryover/convcache"
	"carryover/server/record"
	"carryover/upstream/fleet"
)

// handingBack is a server of which hand-backs are read.
type handingBack struct {
	Server
	counts record.HandBacks
}

// Counts implements Server.
func (h *handingBack) Counts() record.Counts { return record.Counts{HandBacks: h.counts} }

// HandBackWaiting implements Server.
func (*handingBack) HandBackWaiting() int { return 7 }

// HandBackMemory implements Server.
func (*handingBack) HandBackMemory() int64 { return 4096 }

// Waiting implements Server.
func (*handingBack) Waiting() (toBegin, forInstance int) { return 0, 0 }

// Open implements Server.
func (*handingBack) Open() int { return 0 }

// Tickets implements Server.
func (*handingBack) Tickets() int { return 0 }

func TestWatch_HandBacksAreCountedApart(t *testing.T) {
	m, read := newMetrics(t)
	var owner Server
	state := State{Fleet: fleet.New(fleet.Config{}), Store: m.Store(convcache.NewMemory(convcache.MemoryConfig{})), Server: func() Server { return owner }}
	if err := m.Watch(state); err != nil {
		t.Fatal(err)
	}
	of := func(series map[string]float64) map[string]float64 {
		maps.DeleteFunc(series, func(name string, _ float64) bool { return !strings.HasPrefix(name, "carryover.hand_back") })
		return series
	}
	if got := of(read()); len(got) != 0 {
		t.Errorf("without a server: %v", got)
	}
	h := &handingBack{}
	owner = h
	for _, counts := range []record.HandBacks{{}, {Done: 5, Failed: 2, Requeued: 1}} {
		h.counts = counts
		want := map[string]float64{
			"carryover.hand_backs{outcome=done}": float64(counts.Done), "carryover.hand_backs{outcome=failed}": float64(counts.Failed),
			"carryover.hand_backs{outcome=requeued}": float64(counts.Requeued),
			"carryover.hand_back.waiting{}":          7, "carryover.hand_back.memory{}": 4096,
		}
		if got := of(read()); !maps.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	}
}

// What prefill found of what was handed back is a hit like any other, with a proof of its own, from zero.
func TestObserve_HitsOfTheEngineAreToldApart(t *testing.T) {
	m, read := newMetrics(t)
	const hits, offered, tokens = "carryover.turns{follow_up=true,outcome=hit,path=prefill_decode,reason=none}", "carryover.reuse.tokens.offered{proof=engine}", "carryover.reuse.tokens.read{proof=engine}"
	if before := read(); len(before) == 0 || before[hits] != 0 || before[offered] != 0 {
		t.Errorf("at the start: %v", before)
	} else if _, found := before[hits]; !found {
		t.Error("hits do not begin at zero")
	}
	r := hit()
	r.Reuse = record.Reuse{Continues: true, Hit: true, Proof: "engine", Offered: 1900, Read: 300, Cached: 2000}
	m.Observe(r)
	if after := read(); after[hits] != 1 || after[offered] != 1900 || after[tokens] != 300 || after["carryover.reuse.tokens.confirmed{role=prefill}"] != 2000 || after["carryover.prompt.tokens{follow_up=true}"] != 2100 {
		t.Errorf("after a hit: %v", after)
	}
}

func TestObserve_ReasonsOfHandBackAreCounted(t *testing.T) {
	m, read := newMetrics(t)
	for _, reason := range []string{"handing_back", "handed_back_evicted", "handed_back_elsewhere", "hand_back_unreported"} {
		r := hit()
		r.Reuse, r.Stored = record.Reuse{Continues: true, Reason: reason, Cached: -1}, "hand_back"
		m.Observe(r)
		if name := "carryover.turns{follow_up=true,outcome=miss,path=prefill_decode,reason=" + reason + "}"; read()[name] != 1 {
			t.Errorf("%s: got %v, want 1", name, read()[name])
		}
	}
	if got := read()["carryover.tickets{result=hand_back}"]; got != 4 {
		t.Errorf("answers that are handed back: got %v, want 4", got)
	}
}

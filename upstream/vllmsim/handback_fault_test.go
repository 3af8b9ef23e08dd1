package vllmsim

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"carryover/upstream/vllmsim/wire"
)

func TestFault_OnlyHandBacks(t *testing.T) {
	for _, c := range []struct {
		fault  Fault
		status int // 0: no answer
		broken bool
		holds  string // of the body
		read   bool   // decode is free afterwards
	}{
		{Fault{Kind: FaultReset}, 0, true, "", false},
		{Fault{Kind: FaultRestart}, 0, true, "", false},
		{Fault{Kind: FaultStatus, Status: http.StatusServiceUnavailable}, http.StatusServiceUnavailable, false, "simulated fault", false},
		{Fault{Kind: FaultErrorBody200}, http.StatusOK, false, `data: {"error":{`, false},
		{Fault{Kind: FaultErrorEvent}, http.StatusOK, false, `data: {"error":{`, true},
		{Fault{Kind: FaultSlowHeaders, Delay: time.Millisecond}, http.StatusOK, false, "[DONE]", true},
		{Fault{Kind: FaultSlow}, http.StatusOK, false, "[DONE]", true},
		{Fault{Kind: FaultDieBeforeFirstEvent}, http.StatusOK, true, "", true},
		{Fault{Kind: FaultDieMidEvent}, http.StatusOK, true, `data: {"id"`, true},
		{Fault{Kind: FaultGarbageJSON}, http.StatusOK, false, "garbage", true},
		{Fault{Kind: FaultEndWithoutDone}, http.StatusOK, false, `"finish_reason":"length"`, true},
		{Fault{Kind: FaultWrongContentType}, http.StatusOK, false, "[DONE]", true},
		{Fault{Kind: FaultNoIDEcho}, http.StatusOK, false, `"prompt_token_ids":null,"token_ids":[`, true},
		{Fault{Kind: FaultNoUsage}, http.StatusOK, false, `"token_ids":[`, true},
	} {
		t.Run(c.fault.Kind, func(t *testing.T) {
			p, d := startPair(t, nil)
			c.fault.HandBacks, c.fault.Count = true, 1
			setFault(t, p, c.fault)
			k := keptTurn(t, p, d, nil) // unharmed: the fault would be used up
			if n := len(p.faults.All()); n != 1 {
				t.Fatal("the fault has hit the turn")
			}
			status, _, text, err := attemptAt(t, p, wire.PathCompletions, handBackBody(k.ids, k.ticket, object{"max_tokens": 2}))
			if status != c.status || (err != nil) != c.broken || !strings.Contains(text, c.holds) {
				t.Errorf("status %d, error %v, body %q", status, err, text)
			}
			if c.fault.Kind == FaultNoUsage && strings.Contains(text, `"usage"`) || c.fault.Kind == FaultNoIDEcho && strings.Contains(text, `"prompt_token_ids":[`) {
				t.Errorf("%s tells it: %q", c.fault.Kind, text)
			}
			if c.read {
				eventually(t, "decode is free", func() bool { return d.Stats().Pins == 0 })
			} else if s := d.Stats(); s.Pins != 1 || s.Reads != 0 {
				t.Errorf("decode: pins %d, reads %d; want 1 and 0", s.Pins, s.Reads)
			}
			idleEngines(t, p, d)
			assertClean(t, p, d)
		})
	}
}

func TestFault_OtherUsageOfAHandBack(t *testing.T) {
	p, d := startPair(t, nil)
	k := keptTurn(t, p, d, nil)
	setFault(t, p, Fault{Kind: FaultOtherUsage, HandBacks: true})
	event := firstEvent(t, p, handBackBody(k.ids, k.ticket, nil))
	if got := event["usage"].(object)["prompt_tokens"]; got != float64(len(k.ids)+1) {
		t.Errorf("usage says %v prompt tokens, want one more than %d", got, len(k.ids))
	}
}

// A hand-back that computes other ids has told so, and what it has left in the cache is wrong.
func TestFault_OtherIDsOfAHandBack(t *testing.T) {
	p, d := startPair(t, nil)
	k := keptTurn(t, p, d, nil)
	setFault(t, p, Fault{Kind: FaultOtherIDs, HandBacks: true, Count: 1})
	told := ids(choiceOf(firstEvent(t, p, handBackBody(k.ids, k.ticket, nil)))["prompt_token_ids"])
	at := same(told, k.ids)
	if len(told) != len(k.ids) || at != len(k.ids)-20 {
		t.Errorf("told %v, sent %v; want another one, twenty from the end", told, k.ids)
	}
	idleEngines(t, p)
	next := func(ids []int32) {
		post(t, p, wire.PathCompletions, object{"model": "sim", "prompt": append(slices.Clone(ids), 5), "max_tokens": 1})
	}
	next(k.ids[:at/16*16])
	if s := p.Stats(); s.CorruptReads+s.Poisoned != 0 {
		t.Errorf("corrupt reads %d, poisoned %d before that id; want none", s.CorruptReads, s.Poisoned)
	}
	next(k.ids)
	if s := p.Stats(); s.Poisoned != 1 {
		t.Errorf("poisoned %d, want 1", s.Poisoned)
	}
	assertClean(t, d)
}

func TestHoldHandBacks_AndTheClientGoes(t *testing.T) {
	for _, c := range []struct {
		at         HandBackPoint
		pins, read int // of decode, while it is held
		found      bool
		reads      bool // while it is held: its client's going shows when it is let go
	}{
		{HandBackQueued, 1, 0, false, false},
		{HandBackRead, 1, 0, false, true},
		{HandBackComputed, 0, 1, true, false},
	} {
		t.Run(string(c.at), func(t *testing.T) {
			p, d := startPair(t, nil)
			k := keptTurn(t, p, d, nil)
			release := p.HoldHandBacks(c.at)
			defer release()
			takeBack := begin(t, p, wire.PathCompletions, handBackBody(k.ids, k.ticket, nil))
			eventually(t, "it is held", func() bool { return p.Stats().HeldHandBacks == 1 })
			if s := d.Stats(); s.Pins != c.pins || s.Reads != c.read {
				t.Errorf("while it is held: pins %d, reads %d; want %d and %d", s.Pins, s.Reads, c.pins, c.read)
			}
			// A turn goes on meanwhile.
			if got := prefillWith(t, p, k.messages, prefillTemplate(), "other"); got.status != http.StatusOK {
				t.Errorf("a turn meanwhile: %d", got.status)
			}
			if err := takeBack(); err == nil {
				t.Error("it was answered")
			}
			if c.reads {
				release()
				release()
			}
			eventually(t, "it is gone", func() bool { s := p.Stats(); return s.Running == 0 && s.HeldHandBacks == 0 && s.Aborts == 1 })
			if c.reads {
				eventually(t, "decode is told", func() bool { return d.Stats().Reads == 1 })
			} else if s := d.Stats(); s.Pins != c.pins || s.Reads != c.read {
				t.Errorf("afterwards: pins %d, reads %d; want %d and %d", s.Pins, s.Reads, c.pins, c.read)
			}
			before := p.Stats()
			if before.LeasedHandBacks != 0 || before.FreeBlocks+before.PinnedBlocks != p.config().Blocks {
				t.Errorf("prefill keeps blocks of it: %+v", before)
			}
			post(t, p, wire.PathCompletions, object{"model": "sim", "prompt": append(slices.Clone(k.ids), 5), "max_tokens": 1})
			// What was being read is in the cache only if the client's going came after it.
			if hits := p.Stats().LocalHitTokens - before.LocalHitTokens; !c.reads && (hits >= len(k.ids)/16*16) != c.found {
				t.Errorf("the next turn finds %d of %d tokens", hits, len(k.ids))
			}
			assertClean(t, p, d)
		})
	}
}

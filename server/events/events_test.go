package events_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"carryover/server/events"
)

func TestList_KeepsTheLastHundredNewestFirst(t *testing.T) {
	var list events.List
	if got, told := list.Newest(0); got != nil || told != 0 {
		t.Errorf("an empty list has %v, told %d times", got, told)
	}
	drain, reload := list.Teller(events.Drain), list.Teller(events.Reload)
	for i := range 150 {
		drain(fmt.Sprintf("Decode d-%d is drained.", i))
	}
	reload("The configuration was reloaded.")
	got, told := list.Newest(0)
	if len(got) != 100 || told != 151 || got[0].Kind != events.Reload || got[1].Text != "Decode d-149 is drained." || got[99].Text != "Decode d-51 is drained." {
		t.Errorf("%d events, told %d times: %v … %v", len(got), told, got[0], got[len(got)-1])
	}
	if again, told := list.Newest(told); again != nil || told != 151 {
		t.Errorf("what is known already is returned again: %d events, told %d times", len(again), told)
	}
}

func TestList_CountsWhatHappensAgainInTheSameWords(t *testing.T) {
	var list events.List
	engine, store := list.Teller(events.Engine), list.Teller(events.Store)
	store("Redis answers again.")
	for range 1000 {
		engine("Decode d-1 was restarted.")
		engine("Decode d-1 answers again.")
	}
	store("Decode d-1 was restarted.") // another kind is another event
	got, _ := list.Newest(0)
	want := "store Decode d-1 was restarted. 1, engine Decode d-1 answers again. 1000, engine Decode d-1 was restarted. 1000, store Redis answers again. 1"
	var shown []string
	for _, e := range got {
		shown = append(shown, fmt.Sprintf("%s %s %d", e.Kind, e.Text, e.Times))
	}
	if strings.Join(shown, ", ") != want {
		t.Errorf("got %q, want %q", shown, want)
	}
}

func TestList_BoundsASentence(t *testing.T) {
	var list events.List
	list.Teller(events.Store)(strings.Repeat("ü", 5000))
	got, _ := list.Newest(0)
	if text := got[0].Text; len(text) > 310 || !utf8.ValidString(text) || !strings.HasSuffix(text, "ü…") {
		t.Errorf("%d bytes: %q", len(text), text)
	}
}

func TestList_IsSafeForConcurrentUse(t *testing.T) {
	var list events.List
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			for n := range 100 {
				list.Teller(events.Engine)(fmt.Sprintf("%d %d", i, n%50))
				if got, _ := list.Newest(0); len(got) > 100 {
					t.Errorf("%d events", len(got))
				}
			}
		})
	}
	group.Wait()
	if _, told := list.Newest(0); told != 800 {
		t.Errorf("told %d times, want 800", told)
	}
}

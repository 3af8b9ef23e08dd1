package config

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// A time-out that is as good as none is refused: added to the time of day, or to a part of itself, it overflows, and every answer is cut.
func TestDurations_HaveAnUpperBound(t *testing.T) {
	var cfg Config
	for _, s := range Settings(&cfg) {
		if _, ok := s.To.(*time.Duration); !ok || s.Flag == "" {
			continue
		}
		for _, value := range []string{"2562047h", "2540400h", "87600h"} {
			_, err := served(t, "--"+s.Flag+" "+value)
			if err == nil || !strings.Contains(err.Error(), s.Key) {
				t.Errorf("--%s %s: got %v, want it refused", s.Flag, value, err)
			}
		}
	}
	for _, line := range []string{"--first-byte-timeout 168h --idle-timeout 168h --prefill-timeout 168h"} {
		if _, err := served(t, line); err != nil {
			t.Errorf("%s: %v", line, err)
		}
	}
}

// A ticket that lives for less than it usually waits for a turn is handed back halfway, unless the operator has chosen the wait. One that no
// ticket survives matters with idle only.
func TestHandBackAfter_IsBelowTheLifeOfTickets(t *testing.T) {
	const tooLong = `hand_back.after: "%s" (--hand-back-after): want less than store.ttl, %s, for which a ticket lives at most; or hand_back.mode now or off`
	for line, want := range map[string]any{
		"": 5 * time.Second, "--ttl 450s": 5 * time.Second, "--ttl 10s": 5 * time.Second, "--ttl 5s": 2500 * time.Millisecond, "--ttl 3s": 1500 * time.Millisecond,
		"--ttl 3s --hand-back-after 1s": time.Second, "--hand-back-after 449s": 449 * time.Second, "--ttl 5s --hand-back off": 2500 * time.Millisecond,
		"--hand-back now --hand-back-after 1000s": 1000 * time.Second, "--ttl 3s --hand-back-after 3s": fmt.Errorf(tooLong, "3s", "3s"),
		"--ttl 5s --hand-back-after 5s": fmt.Errorf(tooLong, "5s", "5s"), "--hand-back-after 450s": fmt.Errorf(tooLong, "450s", "450s"),
	} {
		cfg, err := served(t, line)
		got := any(cfg.HandBackAfter())
		if err != nil {
			got = err
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%q: handed back after %v, want %v", line, got, want)
		}
	}
}

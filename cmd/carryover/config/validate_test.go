package config

import (
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

// A ticket that lives for less than it usually waits for a turn is handed back halfway, unless the operator has chosen the wait.
func TestHandBackAfter_FollowsAShortTTL(t *testing.T) {
	for _, row := range []struct {
		line  string
		after time.Duration // 0 for a configuration that is refused
	}{
		{"", 5 * time.Second}, {"--ttl 450s", 5 * time.Second}, {"--ttl 10s", 5 * time.Second}, {"--ttl 5s", 2500 * time.Millisecond}, {"--ttl 3s", 1500 * time.Millisecond},
		{"--ttl 3s --hand-back-after 1s", time.Second}, {"--ttl 3s --hand-back-after 3s", 0}, {"--ttl 3s --hand-back-after 5s", 0},
	} {
		cfg, err := served(t, row.line)
		if (err == nil) != (row.after > 0) || err == nil && cfg.HandBackAfter() != row.after {
			t.Errorf("%q: handed back after %s (%v), want %s", row.line, cfg.HandBack.After, err, row.after)
		}
	}
}

// A wait that no ticket survives matters with idle only, and the default follows a time that is too short for it.
func TestConfig_HandBackAfterIsBelowTheLifeOfTickets(t *testing.T) {
	for args, want := range map[string]string{
		"--hand-back-after 450s":                  `hand_back.after: "450s" (--hand-back-after): want less than store.ttl, 450s, for which a ticket lives at most; or hand_back.mode now or off`,
		"--ttl 5s":                                "",
		"--ttl 5s --hand-back-after 5s":           `hand_back.after: "5s" (--hand-back-after): want less than store.ttl, 5s, for which a ticket lives at most; or hand_back.mode now or off`,
		"--hand-back-after 449s":                  "",
		"--ttl 5s --hand-back off":                "",
		"--hand-back now --hand-back-after 1000s": "",
	} {
		got := ""
		if _, err := served(t, args); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: got %s, want %s", args, got, want)
		}
	}
}

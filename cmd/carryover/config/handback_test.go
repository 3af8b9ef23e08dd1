package config

import (
	"testing"
)

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

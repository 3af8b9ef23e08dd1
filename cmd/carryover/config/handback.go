package config

import (
	"fmt"
	"time"

	"carryover/server/continuation"
	"carryover/server/pins"
)

// Wait is a duration, or the word auto.
type Wait time.Duration

// WaitAuto is a wait that is learnt.
const WaitAuto Wait = -1

const waitAuto = "auto"

// String returns auto or the duration.
func (w Wait) String() string {
	if w == WaitAuto {
		return waitAuto
	}
	return FormatDuration(time.Duration(w))
}

// HandBackAfter returns for how long a ticket waits for a turn; a wait that is learnt begins with 5 s. It halves the lifetime of tickets if that
// is no longer.
func (c *Config) HandBackAfter() time.Duration {
	if c.HandBack.After != WaitAuto {
		return time.Duration(c.HandBack.After)
	}
	if ttl := c.Store.TTL; ttl > 0 && ttl <= continuation.Fixed {
		return ttl / 2
	}
	return continuation.Fixed
}

// validateHandBack refuses a wait that no ticket survives.
func validateHandBack(v *validation, c *Config) {
	h := &c.HandBack
	if ttl := c.Store.TTL; h.Mode == string(pins.HandBackIdle) && ttl > 0 && time.Duration(h.After) >= ttl {
		v.fault("hand_back.after", h.After.String(), fmt.Sprintf("less than store.ttl, %s, for which a ticket lives at most; or hand_back.mode now or off", FormatDuration(ttl)))
	}
}

// HandsBack reports whether tickets are handed back.
func (c *Config) HandsBack() bool {
	return c.Connector.HandsBack() && c.HandBack.Mode != string(pins.HandBackOff)
}

// HandBackWhen returns a phrase that says when tickets are handed back.
func (c *Config) HandBackWhen() string {
	if c.HandBack.Mode == string(pins.HandBackNow) {
		return "at the end of each turn"
	}
	idle := "when no turn has used it for " + FormatDuration(c.HandBackAfter())
	if c.HandBack.After == WaitAuto {
		return "or released as it costs least by what is learnt of its kind, and until then " + idle
	}
	return idle
}

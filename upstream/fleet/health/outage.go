package health

import (
	"time"
)

// DownFor is how long picks avoid an engine after a refused connection, unless a health probe succeeds earlier. It is
// short, and harmless: an avoided engine is still tried when no other is left.
const DownFor = 2 * time.Second

// UnhealthyAfter is how many failed health probes in a row make an engine down. A busy API server may be late once, and
// an engine that is down loses all its tickets.
const UnhealthyAfter = 2

type outage struct {
	until  time.Time // set by a refused connection, cleared by a good probe or leg
	failed int       // health probes in a row
	since  time.Time // when until or failed was first set
	told   bool      // logged, and the engine has answered nothing since
}

func (o *outage) lasts(now time.Time) bool { return o.failed >= UnhealthyAfter || now.Before(o.until) }

func (o *outage) tell() (first bool) {
	first = !o.told
	o.told = true
	return first
}

// Heard records that the engine has answered a probe, a reading or a leg.
func (h *Health) Heard() {
	if !h.answered.Swap(true) {
		h.cfg.Heard()
	}
}

// HasAnswered reports whether the engine has answered anything since it last refused a connection.
func (h *Health) HasAnswered() bool { return h.answered.Load() }

// Refused records a refused connection. Picks avoid the engine for DownFor.
func (h *Health) Refused() {
	first := false
	h.change(func(is *condition, now time.Time) {
		if !is.outage.lasts(now) {
			is.outage.since = now
		}
		is.outage.until = now.Add(DownFor)
		h.answered.Store(false) // the next process there has answered nothing yet
		first = is.outage.tell()
	})
	if first {
		h.cfg.Down("refuses connections")
	}
}

// Answered records an answered leg: the engine is no longer down.
func (h *Health) Answered() { h.comeBack(true) }

// comeBack ends the outage. Only a leg changes the circuit.
func (h *Health) comeBack(leg bool) {
	h.Heard()
	told := false
	h.change(func(is *condition, now time.Time) {
		if leg {
			// Another attempt may try: a stream may run for minutes, and its headers suffice, unless the engine was silent after its headers.
			if is.circuit.heard = now; !is.circuit.silent {
				is.circuit.trial = 0
			}
		}
		told = is.outage.told
		is.outage = outage{}
	})
	if told {
		h.cfg.Log.Info("engine answers again")
		h.cfg.Back()
	}
}

// Unreached reports whether the engine was logged as down and has answered nothing since.
func (h *Health) Unreached() bool { return h.read().outage.told }

// Probed records a health probe. A good one does not close the circuit, which is for engines whose health is fine while
// their completions fail.
func (h *Health) Probed(healthy bool) {
	defer h.tellSilence()
	if healthy {
		h.comeBack(false)
		return
	}
	first := false
	h.change(func(is *condition, now time.Time) {
		if is.outage.failed == 0 && !is.outage.lasts(now) {
			is.outage.since = now
		}
		is.outage.failed++
		first = is.outage.failed >= UnhealthyAfter && is.outage.tell()
	})
	if first {
		h.cfg.Down("health probes fail")
	}
}

// Paused records a refusal because the engine is paused. Picks avoid it for DownFor. Its health is good, and its blocks
// can be read and released.
func (h *Health) Paused() {
	h.change(func(is *condition, now time.Time) { is.pausedUntil = now.Add(DownFor) })
}

// Pauses reports whether the engine was seen to be paused within DownFor.
func (h *Health) Pauses() bool { return h.cfg.Now().Before(h.read().pausedUntil) }

// StillPaused asks an engine that was paused whether it still is, and stores the answer. If the engine does not tell,
// Pauses decides.
func (h *Health) StillPaused(ask func() (paused, told bool)) (still bool) {
	if h.read().pausedUntil.IsZero() {
		return false
	}
	paused, told := ask()
	h.change(func(is *condition, now time.Time) {
		switch {
		case paused:
			is.pausedUntil = now.Add(DownFor)
		case told || !now.Before(is.pausedUntil):
			is.pausedUntil = time.Time{}
		}
		still = !is.pausedUntil.IsZero()
	})
	return still
}

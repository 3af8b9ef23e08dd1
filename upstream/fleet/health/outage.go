package health

import (
	"time"
)

// DownFor is how long an engine that refused a connection is avoided, unless a health probe succeeds before. It is
// short because avoiding is only a preference: an engine that is avoided is still tried when no other is left.
const DownFor = 2 * time.Second

// UnhealthyAfter is how many health probes in a row must fail before the engine counts as down. A busy API server may
// be late once, and an engine that counts as down loses all its tickets.
const UnhealthyAfter = 2

// outage is whether an engine fails to answer connections or health probes.
type outage struct {
	until  time.Time // set by a refused connection; a good probe or leg clears it
	failed int       // health probes that failed in a row
	since  time.Time // when until or failed was first set
	told   bool      // the log has reported it, and the engine has answered nothing since
}

func (o *outage) lasts(now time.Time) bool { return o.failed >= UnhealthyAfter || now.Before(o.until) }

// tell reports whether the log is to report the outage now: once until the engine answers.
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

// Refused records that a connection was refused. The engine is avoided for DownFor.
func (h *Health) Refused() {
	first := false
	h.change(func(is *condition, now time.Time) {
		if !is.outage.lasts(now) {
			is.outage.since = now
		}
		is.outage.until = now.Add(DownFor)
		h.answered.Store(false) // whatever answers there next has not been heard yet
		first = is.outage.tell()
	})
	if first {
		h.cfg.Down("refuses connections")
	}
}

// Answered records that a leg was answered: the engine is not down any more.
func (h *Health) Answered() { h.comeBack(true) }

// comeBack clears the outage of an engine that has answered; its circuit hears only of legs.
func (h *Health) comeBack(leg bool) {
	h.Heard()
	told := false
	h.change(func(is *condition, now time.Time) {
		if leg {
			// Another attempt may try: a stream may run for minutes, and its headers are reason enough, unless the engine was silent behind them.
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

// Unreached reports whether the log has reported the engine as down and it has answered nothing since.
func (h *Health) Unreached() bool { return h.read().outage.told }

// Probed records the result of a health probe. A good one does not close the circuit: the circuit is for engines whose
// health is fine while their completions fail.
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

// Paused records that the engine refused a request because it is paused. Picks avoid it for DownFor. Its health is
// good meanwhile, and its blocks can be read and released.
func (h *Health) Paused() {
	h.change(func(is *condition, now time.Time) { is.pausedUntil = now.Add(DownFor) })
}

// Pauses reports whether the engine was seen to be paused within the last two seconds.
func (h *Health) Pauses() bool { return h.cfg.Now().Before(h.read().pausedUntil) }

// StillPaused reports whether an engine that has refused a request as paused is paused still. It asks the engine if it
// has, and stores the answer. Of an engine that does not tell, Pauses is all that is known.
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

package health

import (
	"slices"
	"time"
)

const leastSilence = 10 * time.Second

type silence struct {
	waiting []time.Time // beginnings in order, without streams that a later leg has overtaken: their wait has a cause of its own
	since   time.Time   // beginning of the first; kept when that one leaves a silent engine
	longest time.Duration
	least   time.Duration
	told    bool // logged
}

// limit is four times the longest recent wait for a first byte, or least if that is longer.
func (s *silence) limit() time.Duration { return max(4*s.longest, s.least) }

// Silent reports whether the engine seems to hang and gets no turns: it has sent nothing to waiting streams, and no leg has had a sign of
// it meanwhile. When no stream waits any more, its circuit is open, and one turn at a time tries it.
func (h *Health) Silent(now time.Duration) bool {
	waits := h.waits.Load()
	return int64(now) < h.refuse.Load() || waits > 0 && int64(now)-max(waits, h.heard.Load()) >= h.limit.Load()
}

// Suspected reports whether the engine is silent, or was and has not answered since: its blocks may be unreadable.
func (h *Health) Suspected() bool { return h.refuse.Load() > 0 || h.Silent(h.clock()) }

func (h *Health) clock() time.Duration { return h.cfg.Now().Sub(h.cfg.Born) }

// Wait is a leg's wait for the beginning of its answer. One goroutine may use it.
type Wait struct {
	health *Health
	began  time.Time
	soon   bool
	over   bool // the answer has begun, or the leg has ended
}

// Wait begins a leg's wait. limit is the leg's time limit if its answer begins soon, and 0 if it begins when the work is done.
func (h *Health) Wait(limit time.Duration) (w Wait) {
	w = Wait{health: h, soon: limit > 0}
	h.change(func(is *condition, now time.Time) {
		if w.began = now; !w.soon {
			return
		}
		s := &is.silence
		// A client with a short time limit does not wait for leastSilence.
		if s.least = min(leastSilence, limit/4); len(s.waiting) == 0 {
			s.since = now
		}
		s.waiting = append(s.waiting, now)
	})
	return w
}

// Heard records that the engine works on the leg's answer, which ends a suspicion. It is called for each read.
func (w *Wait) Heard() {
	h := w.health
	now := h.clock()
	suspected := h.refuse.Load() > 0 || h.Silent(now)
	h.heard.Store(int64(now))
	if w.over && !suspected {
		return
	}
	first, took := !w.over, time.Duration(0)
	if w.over = true; w.soon {
		took = now - w.began.Sub(h.cfg.Born)
	}
	if h.speaks(func(is *condition) {
		s := &is.silence
		if !first {
			return
		}
		// A wait counts at most limit: otherwise an engine that hung once could hang four times as long.
		s.longest = max(min(took, s.limit()), s.longest/16*15)
		s.waiting = slices.DeleteFunc(s.waiting, func(began time.Time) bool { return !began.After(w.began) })
		if len(s.waiting) > 0 {
			s.since = s.waiting[0]
		}
	}) {
		h.cfg.Back()
	}
}

// Over records that the leg has ended, with any result.
func (w *Wait) Over() {
	if w.over || !w.soon {
		return
	}
	w.over = true
	h := w.health
	h.change(func(is *condition, now time.Time) {
		s, c := &is.silence, &is.circuit
		at, found := slices.BinarySearchFunc(s.waiting, w.began, time.Time.Compare)
		if !found {
			return
		}
		s.waiting = slices.Delete(s.waiting, at, at+1)
		switch silent := h.Silent(now.Sub(h.cfg.Born)); {
		case len(s.waiting) > 0 && !silent:
			s.since = s.waiting[0]
		case len(s.waiting) == 0 && silent: // the last stream of a silent engine
			if c.silent = true; !c.open(now) {
				c.since = s.since
				c.trip(now)
			}
		}
	})
}

// Worked records that the engine generated tokens after a time, for any client. A health probe shows less: the API server answers it
// while the engine core hangs.
func (h *Health) Worked(after time.Time) {
	at := int64(after.Sub(h.cfg.Born))
	if after.Before(h.read().silence.since) || at <= h.heard.Load() {
		return
	}
	h.heard.Store(at)
	if now, waits := int64(h.clock()), h.waits.Load(); waits == 0 || now-max(waits, at) < h.limit.Load() {
		h.speaks(func(*condition) {})
	}
}

func (h *Health) speaks(also func(is *condition)) (told bool) {
	h.change(func(is *condition, now time.Time) {
		also(is)
		if is.circuit.silent {
			is.circuit = circuit{heard: now}
		}
		told, is.silence.told = is.silence.told, false
	})
	if told {
		h.cfg.Log.Info("engine is no longer silent")
		h.cfg.Tell("is no longer silent")
	}
	return told
}

func (h *Health) tellSilence() {
	first := false
	var since time.Time
	h.change(func(is *condition, now time.Time) {
		first = !is.silence.told && h.Silent(now.Sub(h.cfg.Born))
		is.silence.told = is.silence.told || first
		since = is.silence.since
	})
	if first {
		h.cfg.Log.Warn("engine sends nothing to waiting streams, and gets no turns until it answers", "since", since)
		h.cfg.Tell("sends nothing to waiting streams, and gets no turns until it answers")
	}
}

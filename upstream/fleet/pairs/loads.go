package pairs

import "time"

// BeginLoad asks for permission to hand KV of prefill to decode. A pair is not on trial before it has failed: it is
// stopped by three hand-overs in a row that decode could not load, and by one in the trial after a stop. A caller that
// gets Trial must call EndLoad, or the pair stays in its trial.
func (ps *State) BeginLoad() Status {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return ps.loads.begin("", ps.now())
}

// EndLoad reports how a hand-over ended: Answered as soon as decode shows that it has the KV. Else it is as End.
func (ps *State) EndLoad(outcome Outcome) (pause time.Duration, resumed bool) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.loaded = ps.loaded || outcome == Answered
	pause, resumed = ps.loads.end(outcome, "", ps.now())
	ps.count()
	return pause, resumed
}

// Loaded reports whether decode has ever loaded what prefill has handed over.
func (ps *State) Loaded() bool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return ps.loaded
}

// Apart reports whether BeginLoad would refuse a hand-over, and when the stop ends.
func (ps *State) Apart() (until time.Time, apart bool) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	status := ps.loads.status("", ps.now())
	return ps.loads.until, status == Busy || status == NoReuse
}

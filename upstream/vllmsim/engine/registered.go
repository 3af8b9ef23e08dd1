package engine

import "carryover/upstream/vllmsim/kv"

// The transfer library registers KV memory when an engine starts, and when it wakes from sleep. Since 0.33 params carry the number of the
// registration (remote_registration_generation). A reader that sees a higher number repeats the handshake. Otherwise it reads with what its
// last handshake reported (nixl/pull_worker.py, read).

// Generation returns the number of the registration, 0 if this version does not report it. The caller holds e.Mu.
func (e *Engine) Generation() int {
	if !e.Cfg.Since033() {
		return 0
	}
	return e.registered
}

func (e *Engine) registration() int {
	e.Mu.Lock()
	defer e.Mu.Unlock()
	return e.registered
}

// astray counts a reader with another registration than the current one, and spoils what it reads. Requests of connectors without
// registrations have no number. The caller holds e.Mu.
func (e *Engine) astray(req SideRequest, content []uint64) {
	if req.Registration == 0 || req.Registration == e.registered {
		return
	}
	e.Stats.StaleReads++
	for n := range content {
		content[n] = kv.Mix(content[n] ^ kv.MixB)
	}
}

// SleepAndWake clears the memory and registers it again.
func (e *Engine) SleepAndWake() {
	e.ClearBlocks()
	e.Mu.Lock()
	defer e.Mu.Unlock()
	e.registered++
}

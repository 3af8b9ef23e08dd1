package vllmsim

import "carryover/upstream/vllmsim/kv"

// The transfer library registers KV memory when an engine starts, and again when it wakes from sleep. Since 0.33 params carry the number of
// the registration (remote_registration_generation). A reader that sees a higher number repeats the handshake; otherwise it reads with what
// its last handshake with the engine told it (nixl/pull_worker.py, read).

// SleepAndWake is vLLM's /sleep and /wake_up without waiting for pinned blocks: pins end, the prefix cache becomes empty, the memory is
// overwritten and registered again. A reader with an older registration, or of blocks that were pinned before, reads garbage.
func (i *Instance) SleepAndWake() {
	for _, e := range i.engines() {
		e.clearBlocks()
		e.mu.Lock()
		e.registered++
		e.mu.Unlock()
	}
}

// generation returns the number of the registration, 0 if answers of this version do not have it. The caller holds e.mu.
func (e *engine) generation() int {
	if !e.cfg.Since033() {
		return 0
	}
	return e.registered
}

// registration returns the number of the registration, whatever answers contain.
func (e *engine) registration() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.registered
}

// peerRegistration is a reader's knowledge of the memory of another engine.
type peerRegistration struct {
	asked  int // the highest generation in a ticket so far
	loaded int // the registration that the last handshake reported
}

// registrationOf returns the registration with which e reads the blocks of t. told is the owner's current one.
func (e *engine) registrationOf(t ticket, told int) int {
	if !e.cfg.Since033() {
		return told
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	known, met := e.peersKnown[t.engineID]
	if !met || known.asked < t.generation {
		known = peerRegistration{asked: t.generation, loaded: told}
		e.peersKnown[t.engineID] = known
	}
	return known.loaded
}

// astray counts a reader that uses another registration than the current one, and spoils what it reads. Requests without a number come
// from connectors that have no registrations. The caller holds e.mu.
func (e *engine) astray(req sideRequest, content []uint64) {
	if req.Registration == 0 || req.Registration == e.registered {
		return
	}
	e.stats.StaleReads++
	for n := range content {
		content[n] = kv.Mix(content[n] ^ kv.MixB)
	}
}

package vllmsim

// KV memory is registered with the transfer library at the start of an engine, and again when it wakes from sleep. Since 0.33 params number
// the registration (remote_registration_generation): a reader shakes hands anew when it sees a higher number, and else reads by what it
// learnt at its last handshake with the engine (nixl/pull_worker.py, read).

// SleepAndWake is /sleep and /wake_up of vLLM without the wait for what is pinned: pins end, the prefix cache is empty, what lay in memory
// is written over, and the memory is registered again. Whoever reads by an older registration, or what was pinned before, reads garbage.
func (i *Instance) SleepAndWake() {
	for _, e := range i.engines() {
		e.clearBlocks()
		e.mu.Lock()
		e.registered++
		e.mu.Unlock()
	}
}

// generation is the number of the registration, 0 where answers do not have it. The caller holds e.mu.
func (e *engine) generation() int {
	if !e.cfg.since033() {
		return 0
	}
	return e.registered
}

// registration is the number of the registration, whatever answers have.
func (e *engine) registration() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.registered
}

// peerRegistration is what a reader knows of the memory of another engine.
type peerRegistration struct {
	asked  int // the highest generation that a ticket had
	loaded int // the registration that the last handshake told
}

// registrationOf is the registration by which e reads what t names, told being that of now.
func (e *engine) registrationOf(t ticket, told int) int {
	if !e.cfg.since033() {
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

// astray counts a reader that reads by another registration than that of now, and spoils what it gets. Requests without a number are
// those of connectors that have none. The caller holds e.mu.
func (e *engine) astray(req sideRequest, content []uint64) {
	if req.Registration == 0 || req.Registration == e.registered {
		return
	}
	e.stats.StaleReads++
	for n := range content {
		content[n] = mix(content[n] ^ mixB)
	}
}

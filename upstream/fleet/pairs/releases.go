package pairs

import "time"

// ReleasePause is how long a pair releases nothing after a release failed.
const ReleasePause = 5 * time.Minute

// releases says which legs of a pair may have decode free the blocks of unused tickets.
type releases struct {
	exchangedKV bool      // decode has read KV of this prefill incarnation
	paused      time.Time // no release on this pair before
	spares      time.Time // turns' legs on this pair carry no release before
}

// ExchangedKV records that decode has read KV of prefill: from then on the pair may release.
func (ps *State) ExchangedKV() {
	if ps == nil {
		return
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.releases.exchangedKV = true
}

// ReleaseFailed stops turns' legs on the pair from carrying releases for five minutes, and with own also legs of our
// own: a turn's leg may have failed for another reason.
func (ps *State) ReleaseFailed(own bool) {
	if ps == nil {
		return
	}
	ps.mu.Lock()
	defer ps.mu.Unlock()
	ps.releases.spares = ps.now().Add(ReleasePause)
	if own {
		ps.releases.paused = ps.releases.spares
	}
}

// Releases reports whether a leg of our own may release on the pair now. It may not while the two have exchanged no KV or
// the pair pauses its releases.
func (ps *State) Releases() bool { return ps != nil && ps.mayRelease(true) }

// CarriesReleases reports the same of a turn's leg.
func (ps *State) CarriesReleases() bool { return ps != nil && ps.mayRelease(false) }

func (ps *State) mayRelease(own bool) bool {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	now, r := ps.now(), &ps.releases
	return r.exchangedKV && !now.Before(r.paused) && (own || !now.Before(r.spares))
}

package server

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"carryover/convcache"
	"carryover/upstream"
)

// unused is a ticket that nobody will use any more, while decode still holds its
// blocks: it was removed from the store, or never got there. It is released once.
type unused struct {
	params      []byte
	decode      string // the instance that holds the blocks
	incarnation string // and which start of it
	model       string
	since       time.Time
	deadline    time.Time // decode has freed the blocks by itself from then on
	refused     bool      // an engine refused a client's request that carried it: only a leg of our own may
}

// Bounds of what waits for its release.
const (
	// maxUnused is per decode instance. What does not fit is left to decode's TTL.
	maxUnused = 1024
	// releaseAfter is how long an unused ticket waits for a prefill leg that can
	// carry it before a leg of our own does: an instance that holds pinned blocks
	// keeps a core busy (measured on vLLM 0.32), however few they are.
	releaseAfter = 5 * time.Second
	// maxCarriers bounds the pairs of starts that are known to have exchanged KV. Where
	// there are more, all have to meet again before they release.
	maxCarriers = 1 << 16
	// releasePause is how long a pair releases nothing after a release went wrong.
	releasePause = 5 * time.Minute
)

// releases are the unused tickets of all decode instances.
type releases struct {
	backlog int // more than so many of one instance are worked off at once
	now     func() time.Time

	mu        sync.Mutex // guards the rest
	lists     map[string][]unused
	exchanged map[carrier]bool
	paused    map[carrier]time.Time
	busy      map[string]bool // decode instances with a leg of our own in flight
}

// carrier is a prefill instance that may bring a release to a decode instance, each
// named with its start. The zero carrier brings nothing.
type carrier struct{ prefill, decode string }

// carrierOf is the zero carrier unless both starts are known.
func carrierOf(prefill, decode *upstream.Instance, s starts) carrier {
	if !s.known() {
		return carrier{}
	}
	return carrier{named(prefill, s.prefill.Incarnation), named(decode, s.decode.Incarnation)}
}

func newReleases(backlog int) *releases {
	return &releases{
		backlog: backlog, now: time.Now,
		lists: map[string][]unused{}, exchanged: map[carrier]bool{}, paused: map[carrier]time.Time{}, busy: map[string]bool{},
	}
}

// met records that decode has read KV of prefill, so that the two know each other.
func (r *releases) met(c carrier) {
	if c == (carrier{}) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.exchanged) >= maxCarriers {
		clear(r.exchanged)
	}
	r.exchanged[c] = true
}

// add keeps an unused ticket until it can be released.
func (r *releases) add(u unused) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if u.since.IsZero() {
		u.since = r.now()
	}
	list := r.live(u.decode)
	if len(list) < maxUnused {
		r.lists[u.decode] = append(list, u)
	}
}

// live drops what is past its deadline and returns the rest. It needs r.mu. Of an
// instance with none nothing is remembered: every leg looks through all lists.
func (r *releases) live(decode string) []unused {
	now, list := r.now(), r.lists[decode]
	kept := list[:0]
	for _, u := range list {
		if upstream.Elapsed(u.deadline, now) < 0 {
			kept = append(kept, u)
		}
	}
	clear(list[len(kept):])
	r.keep(decode, kept)
	return kept
}

func (r *releases) keep(decode string, list []unused) {
	if len(list) == 0 {
		delete(r.lists, decode)
		return
	}
	r.lists[decode] = list
}

// waiting lists the decode instances with unused tickets.
func (r *releases) waiting() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []string
	for decode := range r.lists {
		if len(r.live(decode)) > 0 {
			all = append(all, decode)
		}
	}
	return all
}

// take hands out the oldest unused ticket of a decode instance for a carrier to
// bring, on a leg of our own or on a turn's. Tickets of another start of decode
// than incarnation, the one alive, are dropped: its blocks are gone. While that is
// not known they wait.
func (r *releases) take(c carrier, decode, incarnation string, own bool) (unused, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := r.live(decode)
	for incarnation != "" && len(list) > 0 && list[0].incarnation != incarnation {
		list = list[1:]
	}
	r.keep(decode, list)
	at := slices.IndexFunc(list, func(u unused) bool { return u.incarnation == incarnation && (own || !u.refused) })
	if at < 0 || incarnation == "" || !r.exchanged[c] || r.now().Before(r.paused[c]) {
		return unused{}, false
	}
	u := list[at]
	r.keep(decode, slices.Delete(list, at, at+1))
	return u, true
}

// failed stops a pair from releasing for a while.
func (r *releases) failed(c carrier) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	maps.DeleteFunc(r.paused, func(_ carrier, until time.Time) bool { return !now.Before(until) })
	r.paused[c] = now.Add(releasePause)
}

// due lists the decode instances with more unused tickets than the backlog, or with
// one that has waited for too long, and marks them busy until done is called.
func (r *releases) due() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []string
	for decode := range r.lists {
		list := r.live(decode)
		if r.busy[decode] || len(list) == 0 || len(list) <= r.backlog && r.now().Sub(list[0].since) < releaseAfter {
			continue
		}
		r.busy[decode] = true
		all = append(all, decode)
	}
	return all
}

func (r *releases) done(decode string) {
	r.mu.Lock()
	delete(r.busy, decode)
	r.mu.Unlock()
}

// leftover says where an answer's blocks are.
type leftover struct {
	decode      *upstream.Instance
	incarnation string
	model       string
	caughtUp    time.Time
}

// spent notes that a ticket was sent: whatever names its blocks from now on is not to be believed.
func (s *Server) spent(ticket convcache.Ticket) {
	if kept, err := s.deps.Connector.Keep(ticket.Params); err == nil {
		s.blocks.unuse(ticket.Decode, kept)
	}
}

// unuse gives up a ticket that was removed from the store, or never got there.
func (s *Server) unuse(t *turn, ticket convcache.Ticket) {
	kept, err := s.deps.Connector.Keep(ticket.Params)
	if err != nil {
		return // of an older or a foreign version; no engine would understand it either
	}
	s.giveUp(kept, unused{params: ticket.Params, decode: ticket.Decode, incarnation: ticket.Incarnation, model: t.model, deadline: ticket.Deadline})
}

// unuseParams gives up decode's answer, if it is one that holds blocks.
func (s *Server) unuseParams(params []byte, left leftover) {
	if params == nil {
		return
	}
	kept, err := s.deps.Connector.Keep(params)
	if err != nil || !s.blocks.fresh(left.decode.Name, kept) {
		return // none, or there is a ticket for them
	}
	s.giveUp(kept, unused{
		params: kept.Params, decode: left.decode.Name, incarnation: left.incarnation, model: left.model,
		deadline: s.deadline(left.decode, left.caughtUp, kept.Expires),
	})
}

// giveUp has blocks released that no ticket names any more, once.
func (s *Server) giveUp(kept upstream.Kept, u unused) {
	if !s.blocks.unuse(u.decode, kept) {
		s.cfg.Logger.Error("two tickets name the same blocks; one is dropped", "decode", u.decode)
		return
	}
	if s.cfg.Release {
		s.releases.add(u)
	}
}

// carry puts an unused ticket on a prefill leg that has none of its own. Prefill
// reads nothing of it and tells decode to free the blocks (measured on vLLM 0.32:
// within a second, at no cost to the request).
func (s *Server) carry(t *turn, p *pair, h *held, params []byte) []byte {
	if !s.cfg.Release || t.withoutRelease {
		return params
	}
	for _, decode := range s.releases.waiting() {
		u, pair, ok := s.takeUnused(p.prefill, decode, false, s.knownStart)
		if !ok {
			continue
		}
		if carried, err := s.releaseParams(u); err == nil {
			h.release, h.carrier = &u, pair
			return carried
		}
	}
	return params
}

// takeUnused takes a ticket that a leg to prefill may carry to a decode instance, both in the starts that startOf tells.
func (s *Server) takeUnused(prefill *upstream.Instance, decode string, own bool, startOf func(*upstream.Instance) upstream.Facts) (unused, carrier, bool) {
	holder := s.instance(upstream.RoleDecode, decode)
	if holder == nil {
		return unused{}, carrier{}, false
	}
	starts := starts{startOf(prefill), startOf(holder)}
	c := carrierOf(prefill, holder, starts)
	u, ok := s.releases.take(c, decode, starts.decode.Incarnation, own)
	return u, c, ok
}

// releaseFailed deals with an unused ticket whose leg failed: unsent or refused it
// waits on; else it is gone, and so is the pair's turn at releasing for a while.
func (s *Server) releaseFailed(h *held, leg *upstream.LegError) {
	switch {
	case h.release == nil:
	case !leg.Sent:
		s.releases.add(*h.release)
	case leg.Kind == upstream.Gone:
	case leg.Kind == upstream.Status && leg.Status < http.StatusInternalServerError:
		// The engine refused the request before it was scheduled, most likely for what the
		// client sent. Were it for the release, that would fail every turn that carries it.
		h.release.refused = true
		s.releases.add(*h.release)
	default:
		s.releases.failed(h.carrier)
	}
}

func (s *Server) releaseParams(u unused) ([]byte, error) {
	holder := s.instance(upstream.RoleDecode, u.decode)
	if holder == nil {
		return nil, upstream.ErrNoInstance
	}
	return s.deps.Connector.PrefillParams(upstream.TicketOffer{Ticket: u.params, Holder: holder, Release: true})
}

// instance returns the configured instance of that role and name, nil if there is
// none.
func (s *Server) instance(role upstream.Role, name string) *upstream.Instance {
	for _, instance := range s.deps.Pool.Instances(role) {
		if instance.Name == name {
			return instance
		}
	}
	return nil
}

// workEvery is how often the unused tickets are looked through.
const workEvery = time.Second

// workOff releases by legs of our own what no turn has carried, until ctx ends.
func (s *Server) workOff(ctx context.Context) {
	tick := time.NewTicker(workEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		s.workOnce(ctx)
	}
}

// workOnce looks through the unused tickets. A defect ends this look, and not those
// that follow.
func (s *Server) workOnce(ctx context.Context) {
	defer s.survive("release", "all")
	s.retireBranches(ctx)
	for _, decode := range s.releases.due() {
		s.detached.Go(func() {
			defer s.releases.done(decode)
			defer s.survive("release", decode)
			for ctx.Err() == nil && s.releaseOne(ctx, decode) {
			}
		})
	}
}

// releaseOne releases one ticket by a prefill leg of one token, and reports whether
// it is worth going on.
func (s *Server) releaseOne(ctx context.Context, decode string) bool {
	for _, prefill := range s.deps.Pool.Instances(upstream.RolePrefill) {
		if s.barred(prefill) {
			continue
		}
		u, pair, ok := s.takeUnused(prefill, decode, true, func(instance *upstream.Instance) upstream.Facts {
			facts, _ := s.deps.Incarnations.Current(ctx, instance)
			return facts
		})
		if !ok {
			continue
		}
		params, err := s.releaseParams(u)
		if err != nil {
			return true // a malformed one; the next may be better
		}
		body, err := json.Marshal(map[string]any{"model": u.model, "prompt": "x", "max_tokens": 1, "kv_transfer_params": json.RawMessage(params)})
		if err != nil {
			return true
		}
		limited, cancel := context.WithTimeoutCause(ctx, s.cfg.ReuseTrialTimeout, upstream.ErrReuseTimeout)
		_, err = s.deps.Engine.Prefill(limited, upstream.Leg{Instance: prefill, API: upstream.Text, Body: body, RequestID: newID()})
		cancel()
		var leg *upstream.LegError
		switch {
		case errors.As(err, &leg) && !leg.Sent:
			s.releases.add(u)
		case err != nil:
			s.cfg.Logger.Warn("release failed; this pair releases nothing for a while", "prefill", prefill.Name, "decode", decode, "error", err)
			s.releases.failed(pair)
		}
		return err == nil
	}
	return false
}

package fleet

import (
	"sync"

	"carryover/upstream"
)

// Hint is what the policy is told of a turn.
type Hint struct {
	Key   string    // equal for the turns of a conversation, "" without one
	Holds []Holding // where the conversation's KV is
	Model string    // only engines that may serve it are picked; "" is served by all
	// Tokens is how many tokens of the prompt prefill is expected to compute.
	Tokens int
	// Chain has one hash per piece of the beginning of the prompt, each over everything before it.
	Chain []uint64
}

// Holding says that a start of a decode instance holds KV of the conversation.
type Holding struct {
	Decode, Start string // the instance's name, and the id of its start
	Tokens        int
}

// Pick picks an engine of the role and counts it in flight until done is called.
// Engines that exclude names are never picked, nil excluding none; ones that are down only
// if no other is left, so that one wrongly held to be down delays no turn. It returns
// upstream.ErrNoInstance if all are excluded.
func (f *Fleet) Pick(role upstream.Role, hint Hint, exclude func(*Engine) bool) (_ *Engine, done func(), _ error) {
	var up, down []*Engine
	for _, e := range f.Engines(role) {
		switch {
		case exclude != nil && exclude(e): // asked without a lock: it may ask the fleet
		case e.up():
			up = append(up, e)
		default:
			down = append(down, e)
		}
	}
	if len(up) == 0 {
		up = down
	}
	if len(up) == 0 {
		return nil, nil, upstream.ErrNoInstance
	}
	policy := f.cfg.Prefill
	if role == upstream.RoleDecode {
		policy = f.cfg.Decode
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	picked := up[policy.Pick(f.candidates(role, up, hint), hint.Key)]
	picked.count(1)
	var once sync.Once
	return picked, func() { once.Do(func() { picked.count(-1) }) }, nil
}

// candidates tells the policy what it may weigh. It needs f.mu.
func (f *Fleet) candidates(role upstream.Role, engines []*Engine, hint Hint) []upstream.Candidate {
	var prefills, holders []*Start
	if role == upstream.RolePrefill {
		holders = f.holders(hint)
	} else {
		prefills = lasts(f.engines[upstream.RolePrefill])
	}
	all := make([]upstream.Candidate, len(engines))
	for i, e := range engines {
		c := upstream.Candidate{Instance: &e.Instance, InFlight: e.count(0)}
		switch last := e.Last(); {
		case !last.Known():
		case role == upstream.RolePrefill:
			c.Stopped = allStopped([]*Start{last}, holders)
		default:
			c.Holds = last.holds(hint)
			c.Stopped = allStopped(prefills, []*Start{last})
		}
		all[i] = c
	}
	return all
}

// holders returns the starts that hold KV of the conversation and are alive as far as is
// known without asking. It needs f.mu.
func (f *Fleet) holders(hint Hint) (alive []*Start) {
	for _, held := range hint.Holds {
		if e := find(f.engines[upstream.RoleDecode], held.Decode); e != nil && e.up() {
			if last := e.Last(); last.Known() && last.ID() == held.Start {
				alive = append(alive, last)
			}
		}
	}
	return alive
}

// holds returns how many tokens of the conversation this start of decode holds: its
// branches share their beginning, so that the longest counts.
func (s *Start) holds(hint Hint) (tokens int) {
	for _, held := range hint.Holds {
		if held.Decode == s.engine.Name && held.Start == s.id {
			tokens = max(tokens, held.Tokens)
		}
	}
	return tokens
}

// lasts returns which start of each engine was read last.
func lasts(engines []*Engine) []*Start {
	all := make([]*Start, len(engines))
	for i, e := range engines {
		all[i] = e.Last()
	}
	return all
}

// allStopped reports whether all links of these starts are stopped. Two that have no link
// have not been tried. No link at all is not a stopped one.
func allStopped(prefill, decode []*Start) bool {
	for _, p := range prefill {
		for _, d := range decode {
			if l := p.linked(d); l == nil || !l.stopped() {
				return false
			}
		}
	}
	return len(prefill) > 0 && len(decode) > 0
}

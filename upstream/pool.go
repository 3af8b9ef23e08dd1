package upstream

import (
	"slices"
	"sync"
	"time"
)

// downFor is how long an instance that refused a connection is avoided unless a
// health probe succeeds before. It is short because avoiding is only a
// preference: with no other instance left it is tried all the same.
const downFor = 2 * time.Second

// unhealthyAfter is how many probes in a row must fail: a busy API server may be
// late once, and calling an instance down costs all its tickets.
const unhealthyAfter = 2

// Pool is the live set of instances. The zero value is not usable; use NewPool.
type Pool struct {
	policies map[Role]Policy
	now      func() time.Time

	mu      sync.Mutex // guards members and what they point at
	members map[Role][]*member
}

// member is the live state of one configured instance.
type member struct {
	instance  *Instance
	inFlight  int
	downUntil time.Time // passive: set by Report, cleared by a good probe or leg
	failed    int       // active: probes that failed in a row
}

// NewPool returns an empty pool that picks with the given policies.
func NewPool(prefill, decode Policy) *Pool {
	return &Pool{
		policies: map[Role]Policy{RolePrefill: prefill, RoleDecode: decode},
		now:      time.Now,
		members:  map[Role][]*member{},
	}
}

// Set replaces the set of instances. The live state of instances whose
// configuration is unchanged is kept.
func (p *Pool) Set(instances []Instance) {
	p.mu.Lock()
	defer p.mu.Unlock()
	next := map[Role][]*member{}
	for _, instance := range instances {
		m := &member{instance: &instance}
		if old := p.find(instance.Role, instance.Name); old != nil && *old.instance == instance {
			m = old
		}
		next[instance.Role] = append(next[instance.Role], m)
	}
	p.members = next
}

// Acquire picks an instance of the role and counts it in flight until release is
// called. Instances in exclude are never picked; ones that are down only if no
// other is left, so that a wrong verdict delays nobody. It returns ErrNoInstance
// if all are excluded.
func (p *Pool) Acquire(role Role, key string, exclude []string) (_ *Instance, release func(), _ error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var up, down []Candidate
	now := p.now()
	for _, m := range p.members[role] {
		switch {
		case slices.Contains(exclude, m.instance.Name):
		case m.up(now):
			up = append(up, Candidate{Instance: m.instance, InFlight: m.inFlight})
		default:
			down = append(down, Candidate{Instance: m.instance, InFlight: m.inFlight})
		}
	}
	if len(up) == 0 {
		up = down
	}
	if len(up) == 0 {
		return nil, nil, ErrNoInstance
	}
	picked := up[p.policies[role].Pick(up, key)].Instance
	m := p.find(role, picked.Name)
	m.inFlight++
	var once sync.Once
	return picked, func() {
		once.Do(func() {
			p.mu.Lock()
			m.inFlight--
			p.mu.Unlock()
		})
	}, nil
}

// Report tells the pool how a leg on an instance ended: a refused connection
// takes it down for a moment, an answer brings it back.
func (p *Pool) Report(instance *Instance, refused bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	m := p.find(instance.Role, instance.Name)
	if m == nil {
		return
	}
	if refused {
		m.downUntil = p.now().Add(downFor)
	} else {
		m.downUntil, m.failed = time.Time{}, 0
	}
}

// Reachable reports whether the pool has an instance of that role and name and
// does not hold it to be down.
func (p *Pool) Reachable(role Role, name string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	m := p.find(role, name)
	return m != nil && m.up(p.now())
}

// Up returns how many instances of a role are believed to answer.
func (p *Pool) Up(role Role) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for _, m := range p.members[role] {
		if m.up(p.now()) {
			n++
		}
	}
	return n
}

// Instances returns all instances of a role in configured order.
func (p *Pool) Instances(role Role) []*Instance {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make([]*Instance, 0, len(p.members[role]))
	for _, m := range p.members[role] {
		all = append(all, m.instance)
	}
	return all
}

// setHealth records the verdict of an active probe.
func (p *Pool) setHealth(role Role, name string, healthy bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if m := p.find(role, name); m != nil {
		m.failed++
		if healthy {
			m.downUntil, m.failed = time.Time{}, 0
		}
	}
}

// find needs p.mu.
func (p *Pool) find(role Role, name string) *member {
	for _, m := range p.members[role] {
		if m.instance.Name == name {
			return m
		}
	}
	return nil
}

func (m *member) up(now time.Time) bool {
	return m.failed < unhealthyAfter && !now.Before(m.downUntil)
}

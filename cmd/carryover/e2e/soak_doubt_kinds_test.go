package e2e

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"

	"carryover/cmd/carryover/config"
	"carryover/server"
	"carryover/upstream"
	"carryover/upstream/vllmsim"
)

// doubt is something that an engine or a client does now and then, and that must cost time at most.
type doubt struct {
	name  string
	role  string        // of the instance that it befalls; "" is a habit of clients
	fault vllmsim.Fault // of the simulator, completed by draw
	draw  func(f *vllmsim.Fault, draw *rand.Rand)
	habit habit
	// restarts is when the instance starts anew: in the middle, with the fault in force, or at the end, without.
	restarts moment
	alike    bool     // the instances start anew at once in the middle, under their configured engine id, while no turn is under way
	lasts    int      // changes beyond those that every doubt outlives
	times    int      // conversations of the doubt alone, as a multiple of the others'; 0 is once
	all      bool     // it befalls every instance of the role at once
	sleeps   bool     // the instances sleep and wake in the middle, while no turn is under way
	pauses   bool     // the instances are paused while it lasts: they refuse what comes
	seen     bool     // the proxy reads the instance's start whenever the doubt begins, in the middle, and when it ends
	ends     []string // how answers may end because of it, beside well
}

type moment int

const (
	atNoTime moment = iota
	inTheMiddle
	atTheEnd
)

// sleeping has decode sleep and wake, so that its memory is registered anew. No answer suffers, and no ticket from before is offered.
func sleeping() []doubt {
	return []doubt{{name: "decode sleeps", role: config.RoleDecode, sleeps: true}}
}

// restartsAlike has engines start anew without a trace: their addresses and engine ids stay, and no turn is under way. No answer suffers,
// and no ticket from before is offered.
func restartsAlike() []doubt {
	return []doubt{
		{name: "decode restarts alike", role: config.RoleDecode, alike: true},
		{name: "prefill restarts alike", role: config.RolePrefill, alike: true},
	}
}

// habit is what clients do while it is in force.
type habit struct {
	images, leaves, slow bool
	leavesAtFinish       bool // behind finish_reason, before usage
}

// failed is the end of an answer whose status is 500 or more.
const failed = "failed"

func doubts() []doubt {
	return []doubt{
		{name: "the end twice", role: config.RoleDecode, fault: vllmsim.Fault{Kind: vllmsim.FaultDoubleDone}},
		{name: "params behind the end", role: config.RoleDecode, fault: vllmsim.Fault{Kind: vllmsim.FaultEventAfterDone}},
		{name: "an id lost", role: config.RoleDecode, all: true, fault: vllmsim.Fault{Kind: vllmsim.FaultLostID}},
		{name: "an id doubled", role: config.RoleDecode, all: true, times: 2, fault: vllmsim.Fault{Kind: vllmsim.FaultDoubledID}},
		{name: "no usage", role: config.RoleDecode, fault: vllmsim.Fault{Kind: vllmsim.FaultNoUsage, Probability: 0.5}},
		{name: "prefill's answers are lost", role: config.RolePrefill, fault: vllmsim.Fault{Kind: vllmsim.FaultLostAnswer, Tickets: true, Probability: 0.5}},
		{name: "tickets refused", role: config.RolePrefill, fault: vllmsim.Fault{Kind: vllmsim.FaultStatus, Tickets: true}, draw: func(f *vllmsim.Fault, draw *rand.Rand) {
			f.Status = []int{http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable}[draw.IntN(3)]
		}},
		{name: "decode hides its start", role: config.RoleDecode, all: true, fault: vllmsim.Fault{Kind: vllmsim.FaultHiddenStart}, seen: true},
		{name: "decode hides that it was restarted", role: config.RoleDecode, all: true, fault: vllmsim.Fault{Kind: vllmsim.FaultHiddenStart},
			restarts: inTheMiddle, seen: true, ends: []string{endsBroken, failed}},
		{name: "prefill hides that it was restarted", role: config.RolePrefill, fault: vllmsim.Fault{Kind: vllmsim.FaultHiddenStart},
			restarts: inTheMiddle, seen: true, ends: []string{endsBroken, failed}},
		{name: "other ids than sent", role: config.RolePrefill, fault: vllmsim.Fault{Kind: vllmsim.FaultOtherIDs},
			restarts: atTheEnd, lasts: 3, times: 2, seen: true, ends: []string{endsBroken, failed}},
		{name: "death in an event", role: config.RoleDecode, fault: vllmsim.Fault{Kind: vllmsim.FaultDieMidEvent, Probability: 0.5},
			draw: func(f *vllmsim.Fault, draw *rand.Rand) { f.Events = draw.IntN(30) }, ends: []string{endsBroken, failed}},
		{name: "no end", role: config.RoleDecode, fault: vllmsim.Fault{Kind: vllmsim.FaultEndWithoutDone, Probability: 0.5}, ends: []string{endsClean}},
		{name: "slow events", role: config.RoleDecode, fault: vllmsim.Fault{Kind: vllmsim.FaultSlowStream, Probability: 0.3, Delay: slowness}},
		{name: "comments", role: config.RoleDecode, fault: vllmsim.Fault{Kind: vllmsim.FaultComments}},
		{name: "comments before an error", role: config.RoleDecode, fault: vllmsim.Fault{Kind: vllmsim.FaultErrorEvent, Comments: true, Probability: 0.3}, ends: []string{failed}},
		{name: "comments and no end", role: config.RoleDecode, fault: vllmsim.Fault{Kind: vllmsim.FaultEndWithoutDone, Comments: true, Probability: 0.5}, ends: []string{endsClean}},
		{name: "usage on two lines", role: config.RoleDecode, all: true, fault: vllmsim.Fault{Kind: vllmsim.FaultSplitUsage}},
		{name: "decode is paused", role: config.RoleDecode, pauses: true, ends: []string{failed}},
		{name: "prefill is paused", role: config.RolePrefill, pauses: true, ends: []string{failed}},
		{name: "clients leave at the finish", role: config.RoleDecode, all: true, fault: vllmsim.Fault{Kind: vllmsim.FaultSlowStream, Delay: slowness},
			habit: habit{leavesAtFinish: true}, ends: []string{endsLeft}},
		{name: "clients leave", habit: habit{leaves: true}, ends: []string{endsLeft}},
		{name: "slow clients", habit: habit{slow: true}},
		{name: "images", habit: habit{images: true}, lasts: 5, times: 2},
	}
}

// spell is a doubt in force. Its time is that of the storm: changes so far.
type spell struct {
	doubt
	at       []*vllmsim.Instance
	from, to int // to is what it is planned to be while the spell goes on
	over     bool
}

// storm lets doubts come and go as turns begin. Everything follows from its seed and from the number of turns.
type storm struct {
	kinds     []doubt
	instances map[string][]*vllmsim.Instance
	deps      *server.Deps
	calmAfter int                     // turns
	restarted func(*vllmsim.Instance) // is told before an instance starts anew, if not nil

	mu     sync.Mutex // guards what follows
	draw   *rand.Rand
	turns  int
	next   int // the turn that begins with a change
	clock  int
	spells []*spell
	quiet  []*spell    // which are to take effect as soon as no turn is under way
	began  map[int]int // how many turns under way have begun at each time
}

// Turns from one change to the next, and changes that a doubt outlives.
const (
	changeLeast, changeSpread = 4, 8
	spellSpread               = 3
)

// begin is called when a turn begins. It returns the time, and what clients do at it.
func (s *storm) begin(ctx context.Context) (now int, h habit, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turns++
	if s.turns > s.next {
		s.next = s.turns + changeLeast + s.draw.IntN(changeSpread)
		err = s.change(ctx)
	}
	for _, p := range s.spells {
		if !p.over {
			h.images, h.leaves, h.slow = h.images || p.habit.images, h.leaves || p.habit.leaves, h.slow || p.habit.slow
			h.leavesAtFinish = h.leavesAtFinish || p.habit.leavesAtFinish
		}
	}
	if s.began == nil {
		s.began = map[int]int{}
	}
	s.began[s.clock]++
	return s.clock, h, err
}

// ended is called when a turn is over that began at that time.
func (s *storm) ended(from int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.began[from]--; s.began[from] == 0 {
		delete(s.began, from)
	}
}

// takeQuiet hands out what is to take effect while no turn is under way.
func (s *storm) takeQuiet() []*spell {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := s.quiet
	s.quiet = nil
	return list
}

// unsure reports whether decode has hidden its start at some moment since the first of the turns under way began.
func (s *storm) unsure() bool {
	s.mu.Lock()
	from := s.clock
	for at := range s.began {
		from = min(from, at)
	}
	s.mu.Unlock()
	atTimes, _ := s.hidden(from)
	return atTimes
}

// hides reports whether an instance hides its start now.
func (s *storm) hides(instance *vllmsim.Instance) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.spells, func(p *spell) bool {
		return !p.over && p.fault.Kind == vllmsim.FaultHiddenStart && slices.Contains(p.at, instance)
	})
}

// change ends what is to end, begins what is to begin, and restarts what is to be restarted. The caller holds s.mu.
func (s *storm) change(ctx context.Context) error {
	s.clock++
	var errs []error
	for _, p := range s.spells {
		switch {
		case p.over:
		case s.clock >= p.to || s.turns >= s.calmAfter:
			errs = append(errs, s.end(ctx, p))
		case (p.sleeps || p.alike) && s.clock == p.from+1:
			s.quiet = append(s.quiet, p)
		case p.restarts == inTheMiddle && s.clock == p.from+1:
			s.restart(p)
			s.look(ctx, p)
		}
	}
	if s.turns < s.calmAfter {
		errs = append(errs, s.start(ctx))
	}
	return errors.Join(errs...)
}

// start begins one doubt, or none at times, so that there is also calm to recover in.
func (s *storm) start(ctx context.Context) error {
	kind := s.kinds[s.draw.IntN(len(s.kinds))]
	p := &spell{doubt: kind, from: s.clock, to: s.clock + 2 + kind.lasts + s.draw.IntN(spellSpread)}
	if s.draw.IntN(4) == 0 {
		return nil
	}
	if kind.role != "" {
		list := s.instances[kind.role]
		if p.at = list; !kind.all {
			at := s.draw.IntN(len(list))
			p.at = list[at : at+1]
		}
		if slices.ContainsFunc(s.spells, p.meets) {
			return nil // one at a time on one instance
		}
		if kind.draw != nil {
			kind.draw(&p.fault, s.draw)
		}
		for _, instance := range p.at {
			if p.pauses {
				instance.Pause()
			}
			if p.fault.Kind == "" {
				continue
			}
			if err := instance.SetFault(p.fault); err != nil {
				return err
			}
		}
		s.look(ctx, p)
	}
	s.spells = append(s.spells, p)
	return nil
}

// end takes a doubt away. What a restart has cut is noticed a while later: the spell counts until the next change.
func (s *storm) end(ctx context.Context, p *spell) error {
	p.over, p.to = true, s.clock
	var errs []error
	for _, instance := range p.at {
		instance.Resume()
		errs = append(errs, instance.ClearFaults())
	}
	if p.restarts == atTheEnd {
		s.restart(p)
	}
	if p.restarts != atNoTime {
		p.to++
	}
	s.look(ctx, p)
	return errors.Join(errs...)
}

func (s *storm) restart(p *spell) {
	for _, instance := range p.at {
		if s.restarted != nil {
			s.restarted(instance)
		}
		instance.Restart()
	}
}

// meets reports whether another spell is in force on one of the same instances.
func (p *spell) meets(other *spell) bool {
	return !other.over && slices.ContainsFunc(p.at, func(i *vllmsim.Instance) bool { return slices.Contains(other.at, i) })
}

// look has the proxy read the start of an instance, as its prober does every other second; what it knows counts for
// five seconds, which are many turns here.
func (s *storm) look(ctx context.Context, p *spell) {
	if p.seen {
		s.readStarts(ctx, p.role)
	}
}

func (s *storm) readStarts(ctx context.Context, role string) {
	which := upstream.RolePrefill
	if role == config.RoleDecode {
		which = upstream.RoleDecode
	}
	for _, engine := range s.deps.Fleet.Engines(which) {
		engine.Refused() // a reading under way may have begun before
		engine.Health.Answered()
		engine.Refresh(ctx)
	}
}

// settle ends all that is in force.
func (s *storm) settle(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clock++
	var errs []error
	for _, p := range s.spells {
		if !p.over {
			errs = append(errs, s.end(ctx, p))
		}
	}
	s.readStarts(ctx, config.RolePrefill)
	s.readStarts(ctx, config.RoleDecode)
	return errors.Join(errs...)
}

// explains names the doubt that explains the end of an answer to a turn that began at that time and is over, "" if none
// does.
func (s *storm) explains(ends string, from int) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.spells {
		if p.from <= s.clock && (!p.over || p.to >= from) && slices.Contains(p.ends, ends) {
			return p.name
		}
	}
	return ""
}

// hidden reports whether decode has hidden its start at some moment, or all the time, since a turn began that is over.
func (s *storm) hidden(from int) (atTimes, always bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.spells {
		if p.fault.Kind == vllmsim.FaultHiddenStart && p.role == config.RoleDecode {
			atTimes = atTimes || !p.over || p.to >= from
			always = always || !p.over && p.from <= from
		}
	}
	return atTimes, always
}

// restarts counts the spells that restart an instance of a role.
func (s *storm) restarts(role string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.spells {
		if (p.restarts != atNoTime || p.alike) && p.role == role {
			n++
		}
	}
	return n
}

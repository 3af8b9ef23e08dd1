package e2e

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"

	"carryover/cmd/carryover/config"
	"carryover/server"
	"carryover/upstream/vllmsim"
	"go.yaml.in/yaml/v3"
)

// doubt is something that an engine or a client does now and then, and that must cost time at most.
type doubt struct {
	Name     string
	Role     string // of the instance that it befalls; "" is a habit of clients
	Fault    object // of the simulator, as in its JSON
	fault    vllmsim.Fault
	Statuses []int    // one of them is the fault's
	Events   int      // fewer of them are the fault's
	Habit    string   // what clients do while it is in force: images, leaves, slow, or "leaves at finish", behind finish_reason and before usage
	Restarts string   // when the instance starts anew: in the middle, with the fault in force, or at the end, without
	Alike    bool     // the instances start anew at once in the middle, under their configured engine id, while no turn is under way
	Lasts    int      // changes beyond those that every doubt outlives
	Times    int      // conversations of the doubt alone, as a multiple of the others'; 0 is once
	All      bool     // it befalls every instance of the role at once
	Sleeps   bool     // the instances sleep and wake in the middle, while no turn is under way
	Pauses   bool     // the instances are paused while it lasts: they refuse what comes
	Seen     bool     // the proxy reads the instance's start whenever the doubt begins, in the middle, and when it ends
	Ends     []string // how answers may end because of it, beside well
}

const inTheMiddle, atTheEnd = "in the middle", "at the end"

// failed is the end of an answer whose status is 500 or more.
const failed = "failed"

// doubts are those of a group in testdata/doubts.yaml.
func doubts(t *testing.T, group string) []doubt {
	t.Helper()
	text, err := os.ReadFile("testdata/doubts.yaml")
	noError(t, err)
	groups := map[string][]doubt{}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	noError(t, decoder.Decode(&groups))
	for i := range groups[group] {
		kind := &groups[group][i]
		fill(t, &kind.fault, encode(kind.Fault))
	}
	return groups[group]
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
func (s *storm) begin(ctx context.Context) (now int, habits []string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turns++
	if s.turns > s.next {
		s.next = s.turns + changeLeast + s.draw.IntN(changeSpread)
		err = s.change(ctx)
	}
	for _, p := range s.spells {
		if !p.over {
			habits = append(habits, p.Habit)
		}
	}
	if s.began == nil {
		s.began = map[int]int{}
	}
	s.began[s.clock]++
	return s.clock, habits, err
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
		case (p.Sleeps || p.Alike) && s.clock == p.from+1:
			s.quiet = append(s.quiet, p)
		case p.Restarts == inTheMiddle && s.clock == p.from+1:
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
	p := &spell{doubt: kind, from: s.clock, to: s.clock + 2 + kind.Lasts + s.draw.IntN(spellSpread)}
	if s.draw.IntN(4) == 0 {
		return nil
	}
	if kind.Role != "" {
		list := s.instances[kind.Role]
		if p.at = list; !kind.All {
			at := s.draw.IntN(len(list))
			p.at = list[at : at+1]
		}
		if slices.ContainsFunc(s.spells, p.meets) {
			return nil // one at a time on one instance
		}
		if len(kind.Statuses) > 0 {
			p.fault.Status = kind.Statuses[s.draw.IntN(len(kind.Statuses))]
		}
		if kind.Events > 0 {
			p.fault.Events = s.draw.IntN(kind.Events)
		}
		for _, instance := range p.at {
			if p.Pauses {
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
	if p.Restarts == atTheEnd {
		s.restart(p)
	}
	if p.Restarts != "" {
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
	if p.Seen {
		s.readStarts(ctx)
	}
}

func (s *storm) readStarts(ctx context.Context) {
	for _, engine := range engines(s.deps.Fleet) {
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
	s.readStarts(ctx)
	return errors.Join(errs...)
}

// explains names the doubt that explains the end of an answer to a turn that began at that time and is over, "" if none
// does.
func (s *storm) explains(ends string, from int) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.spells {
		if p.from <= s.clock && (!p.over || p.to >= from) && slices.Contains(p.Ends, ends) {
			return p.Name
		}
	}
	return ""
}

// hidden reports whether decode has hidden its start at some moment, or all the time, since a turn began that is over.
func (s *storm) hidden(from int) (atTimes, always bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.spells {
		if p.fault.Kind == vllmsim.FaultHiddenStart && p.Role == config.RoleDecode {
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
		if (p.Restarts != "" || p.Alike) && p.Role == role {
			n++
		}
	}
	return n
}

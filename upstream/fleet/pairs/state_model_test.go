package pairs

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// pairModel is a pair as ARCHITECTURE.md tells of it: a phase, and how many tickets have gone wrong in a row (while it is
// new, on its first trial or proven) or how many stops there have been in a row (while it is stopped or tried again).
type pairModel struct {
	phase string
	n     int
}

// The phases. An untried or stopped link whose time is over waits for a turn to be its trial.
const (
	untried  = "untried"
	onTrial  = "on trial"
	proven   = "proven"
	stopped  = "stopped"
	due      = "due"
	retrying = "tried again"
)

// The events besides the four fates.
const (
	begins  = "begin"
	elapses = "30m pass"
)

// said is what the caller is told of an event.
type said struct {
	stopped bool
	status  Status
	pause   time.Duration
	resumed bool
}

func stopsFor(n int) (pairModel, said) {
	return pairModel{stopped, n + 1}, said{pause: []time.Duration{1, 2, 4, 8, 16, 30}[min(n, 5)] * time.Minute}
}

// after is the model's next state.
func (m pairModel) after(event string) (pairModel, said) {
	wrong := event == "unanswered" || event == "failed"
	switch {
	case event == elapses && m.phase == stopped:
		return pairModel{due, m.n}, said{}
	case event == elapses:
	case event == begins:
		next, status := m.begun()
		return next, said{status: status}
	case m.phase == untried, m.phase == stopped, m.phase == due: // a fate that comes late
	case event == "answered":
		return pairModel{proven, 0}, said{resumed: m.phase == retrying}
	case m.phase == onTrial && event == "inconclusive":
		return pairModel{untried, m.n}, said{}
	case m.phase == retrying && event == "inconclusive":
		return pairModel{due, m.n}, said{}
	case m.phase == onTrial && event == "unanswered", wrong && m.phase != retrying && m.n == 2:
		return stopsFor(0)
	case m.phase == onTrial && event == "failed":
		return pairModel{untried, m.n + 1}, said{}
	case m.phase == proven && wrong:
		return pairModel{proven, m.n + 1}, said{}
	case m.phase == retrying && wrong:
		return stopsFor(m.n)
	}
	return m, said{}
}

func (m pairModel) begun() (pairModel, Status) {
	switch m.phase {
	case untried:
		return pairModel{onTrial, m.n}, Trial
	case due:
		return pairModel{retrying, m.n}, Trial
	case proven:
		return m, Proven
	case stopped:
		return m, NoReuse
	}
	return m, Busy
}

// trialEvents are the fates and the other events.
func trialEvents() map[string]Outcome {
	return map[string]Outcome{begins: 0, elapses: 0, "answered": Answered, "failed": Failed, "unanswered": Unanswered, "inconclusive": Inconclusive}
}

// play runs events from the start and returns what was said of the last.
func play(events []string) said {
	now := time.Unix(0, 0)
	ps := &State{now: func() time.Time { return now }}
	var s said
	for _, event := range events {
		s = said{}
		switch outcome := trialEvents()[event]; event {
		case begins:
			s.status = ps.Begin("")
		case elapses:
			now = now.Add(retrialMax)
		default:
			s.pause, s.resumed = ps.End(outcome, "")
		}
		s.stopped = ps.Stopped()
	}
	return s
}

// From each state that the model can be in, every sequence of four events is told alike by the model and by a Link.
func TestState_AllOrdersOfEvents(t *testing.T) {
	paths := map[pairModel][]string{{untried, 0}: nil}
	queue := []pairModel{{untried, 0}}
	for ; len(queue) > 0; queue = queue[1:] {
		for event := range trialEvents() {
			next, _ := queue[0].after(event)
			if _, known := paths[next]; !known && next.n <= 7 {
				paths[next] = append(slices.Clone(paths[queue[0]]), event)
				queue = append(queue, next)
			}
		}
	}
	if want := 3*3 + 3*7; len(paths) != want {
		t.Fatalf("the model has %d states, want %d", len(paths), want)
	}
	for state, path := range paths {
		follow(t, state, path, 4)
	}
}

// follow checks every continuation of a path by so many events.
func follow(t *testing.T, state pairModel, path []string, depth int) {
	t.Helper()
	if depth == 0 || t.Failed() {
		return
	}
	for event := range trialEvents() {
		events := append(slices.Clone(path), event)
		next, want := state.after(event)
		want.stopped = next.phase == stopped
		if got := play(events); got != want {
			t.Errorf("%s\ngot  %+v\nwant %+v", strings.Join(events, ", "), got, want)
			return
		}
		follow(t, next, events, depth-1)
	}
}

// However a pair came to where it is, there is a way back to reuse: a trial is over as soon as it ends inconclusively,
// and an answer to a later one proves the pair.
func TestState_NoStopIsLost(t *testing.T) {
	var visit func(path []string)
	visit = func(path []string) {
		back := append(slices.Clone(path), "inconclusive", elapses, begins)
		if got := play(back).status; got != Trial && got != Proven {
			t.Errorf("%s: got %v, want Trial or Proven", strings.Join(back, ", "), got)
		}
		if got := play(append(back, "answered", begins)).status; got != Proven {
			t.Errorf("%s, answered: got %v, want Proven", strings.Join(back, ", "), got)
		}
		if len(path) == 5 {
			return
		}
		for event := range trialEvents() {
			visit(append(slices.Clone(path), event))
		}
	}
	visit(nil)
}

// What one client's tickets show holds for that client: the next turn of another, or leg of our own, tries the pair, and what several or
// one of our own have shown holds for everybody.
func TestState_OneClientDecidesNothing(t *testing.T) {
	for name, row := range map[string]struct {
		strikes, then string // each a client, "-" for a leg of our own
		want          Status
	}{
		"its own":         {"aaa", "a", NoReuse},
		"another's":       {"aaa", "b", Trial},
		"our own":         {"aaa", "-", Trial},
		"of several":      {"aba", "c", NoReuse},
		"of one of ours":  {"aa-", "c", NoReuse},
		"tried in vain":   {"aaab", "c", NoReuse},
		"in vain by ours": {"aaa-", "a", NoReuse},
	} {
		now := time.Unix(0, 0)
		ps := New(func() time.Time { return now })
		ps.Begin("")
		ps.End(Answered, "")
		of := func(client string) string { return strings.Trim(client, "-") }
		for _, client := range strings.Split(row.strikes, "") {
			ps.Begin(of(client))
			ps.End(Failed, of(client))
		}
		if got := ps.Begin(of(row.then)); got != row.want {
			t.Errorf("%s: got %v, want %v", name, got, row.want)
		}
	}
}

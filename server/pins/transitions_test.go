package pins

import (
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The package comment has the table of the code.
func TestTransitions_AreTheTableOfThePackageComment(t *testing.T) {
	text, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	table := map[string][]string{}
	for _, row := range regexp.MustCompile(`(?m)^//\t(\S+(?: \S+)*) {2,}(.+)$`).FindAllStringSubmatch(string(text), -1) {
		table[row[1]] = strings.Split(row[2], ", ")
	}
	if len(table) != len(transitions) {
		t.Errorf("the package comment has %d states, the code %d", len(table), len(transitions))
	}
	for state, next := range transitions {
		var names []string
		for _, n := range next {
			names = append(names, n.String())
		}
		switch {
		case State(state) == Unseen:
			if len(next) != len(transitions)-1 {
				t.Errorf("unseen may become %v, want every other state", names)
			}
			names = []string{"anything: another process has made the ticket", "or its name was forgotten"}
		case len(next) == 0:
			names = []string{"the end"}
		}
		if got := table[State(state).String()]; !slices.Equal(got, names) {
			t.Errorf("%s: the package comment says %q, the code %q", State(state), got, names)
		}
	}
}

// What a release has freed, or will not free any more, is named by no later ticket.
func TestTransitions_NothingFollowsAnEnd(t *testing.T) {
	for state, next := range transitions {
		if ends := State(state) == Freed || State(state) == Unknown; ends != (len(next) == 0) {
			t.Errorf("%s may become %v", State(state), next)
		}
		if State(state) != Unseen && slices.Contains(next, Named) {
			t.Errorf("%s may be named again", State(state))
		}
	}
}

// A change that the table does not have leaves the state as it was.
func TestStates_ChangeAsTheTableSays(t *testing.T) {
	for state := range transitions {
		for next := range transitions {
			s := newStates(0, nil)
			s.young[1] = State(state)
			may := slices.Contains(transitions[state], State(next))
			want := State(state)
			if may {
				want = State(next)
			}
			if got := s.try(1, State(next)); got != may || s.of(1) != want {
				t.Errorf("%s to %s: changed %t, is %s", State(state), State(next), got, s.of(1))
			}
		}
	}
}

func TestStates_CountAndLogADefect(t *testing.T) {
	var log strings.Builder
	s := newStates(0, slog.New(slog.NewTextHandler(&log, nil)))
	s.move(1, Freed)
	s.move(1, Stored)
	if s.of(1) != Freed || s.faults.Load() != 1 || !strings.Contains(log.String(), "level=ERROR") || !strings.Contains(log.String(), "from=freed to=stored") {
		t.Errorf("it is %s after %d faults, logged %q", s.of(1), s.faults.Load(), log.String())
	}
	s.strict = true
	defer func() {
		if recover() == nil {
			t.Error("no panic in a test")
		}
	}()
	s.move(1, Stored)
}

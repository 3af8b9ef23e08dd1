package health

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"carryover/logtest"
	"carryover/upstream"
)

// role has engines of one role, called a, b, c …, whose clock the test moves.
type role struct {
	t         *testing.T
	now, born time.Time
	members   []Member
	waits     map[string]*Wait
	log       logtest.Log
	told      []string // to operators
}

func newRole(t *testing.T, engines int) *role {
	t.Helper()
	r := &role{t: t, now: time.Now(), waits: map[string]*Wait{}}
	r.born = r.now
	for i := range engines {
		name := string(rune('a' + i))
		r.members = append(r.members, Member{Health: &Health{}})
		r.members[i].Health.Init(Config{
			Now: func() time.Time { return r.now }, Born: r.born, Log: r.log.Logger().With("instance", name),
			Heard: func() {}, Back: func() {}, Down: func(string) {}, Tell: func(what string) { r.told = append(r.told, name+" "+what) },
		})
	}
	return r
}

// pass moves the clock on.
func (r *role) pass(d time.Duration) { r.now = r.now.Add(d) }

// up reports whether picks prefer an engine now.
func (r *role) up(i int) bool { return r.members[i].Health.Up(r.now.Sub(r.born)) }

// paced has each engine answer ten legs of 1000 tokens, at so many microseconds a token, and then lets a round judge them.
func (r *role) paced(rounds int, perToken ...int) {
	for range rounds {
		for i, m := range r.members {
			for range slowSamples {
				m.Health.Took(1000, time.Duration(1000*perToken[i])*time.Microsecond)
			}
		}
		Eject(r.members)
	}
}

// out returns the names of the engines that are ejected.
func (r *role) out() string {
	var names []string
	for i, m := range r.members {
		if state, _ := m.Health.State(); state == "ejected" {
			names = append(names, string(rune('a'+i)))
		}
	}
	return strings.Join(names, " ")
}

// scripts are what engines do, and what is to be seen of them, by what they show. Steps are separated by semicolons. The first word is:
//
//	role N           has N engines; one if there is no such step
//	pass TIME        moves the clock on
//	pace N TIMES...  legs of each engine in N rounds of judgments, with microseconds per token
//	weigh N...       the weights of the engines
//	round            a judgment without new legs
//	out NAMES        the engines that are ejected
//	logged N TEXT    a text was logged N times
//
// or an engine, which is followed by what happens to it, or the wait of a stream.
type scripts map[string]string

func (s scripts) run(t *testing.T) {
	t.Helper()
	for name, script := range s {
		t.Run(name, func(t *testing.T) {
			r := newRole(t, 1)
			for step := range strings.SplitSeq(script, ";") {
				words := strings.Fields(step)
				want := strings.Join(words[1:], " ")
				if got := r.step(words, want); got != want {
					t.Errorf("%s: got %s; the log has\n%s", step, got, r.log.String())
				}
			}
		})
	}
}

func (r *role) step(words []string, want string) (got string) {
	n, _ := strconv.Atoi(append(words, "")[1])
	switch words[0] {
	case "role":
		*r = *newRole(r.t, n)
	case "pass":
		d, err := time.ParseDuration(want)
		if err != nil {
			r.t.Fatal(err)
		}
		r.pass(d)
	case "pace":
		r.paced(n, numbers(words[2:])...)
	case "weigh":
		for i, weight := range numbers(words[1:]) {
			r.members[i].Weight = weight
		}
	case "round":
		Eject(r.members)
	case "out":
		return r.out()
	case "logged":
		_, text, _ := strings.Cut(want, " ")
		return fmt.Sprint(r.log.Count(text), " ", text)
	default:
		if wait, is := r.waits[words[0]]; is {
			map[string]func(){"heard": wait.Heard, "over": wait.Over}[want]()
			return want
		}
		i := int(words[0][0] - 'a')
		rest := strings.Join(words[2:], " ")
		return strings.TrimSpace(words[1] + " " + r.engineStep(i, words[1], rest, words[2:]))
	}
	return want
}

func numbers(words []string) (all []int) {
	for _, word := range words {
		n, _ := strconv.Atoi(word)
		all = append(all, n)
	}
	return all
}

// engineStep does a step of an engine, and returns rest or what was got instead.
func (r *role) engineStep(i int, verb, rest string, words []string) string {
	h, n := r.members[i].Health, append(numbers(words), 0)[0]
	failure := &upstream.LegError{Kind: upstream.Status, Status: 503}
	switch verb {
	case "answers":
		h.Answered()
	case "serves":
		h.Served()
	case "fails":
		for range n {
			h.Failed(failure)
		}
	case "times-out": // after a leg that began so long ago
		d, _ := time.ParseDuration(rest)
		h.Failed(&upstream.LegError{Kind: upstream.Timeout})
		h.Unanswered(r.now.Add(-d))
	case "doubts": // so many failures, of which the last asks; or none
		asks := ""
		for k := range n {
			if h.Doubted() {
				asks += fmt.Sprint(" asks at ", k+1)
			}
		}
		return fmt.Sprint(n, asks)
	case "asked":
		if rest == "" {
			h.Asked(nil)
		} else {
			h.Asked(failure)
		}
	case "well":
		h.Probed(true)
	case "refuses":
		h.Refused()
	case "restarts":
		h.Restarted()
	case "drains", "resumes":
		h.SetDrain(verb == "drains")
	case "worked": // so long ago
		d, _ := time.ParseDuration(rest)
		h.Worked(r.now.Add(-d))
	case "waits": // a stream, or a whole answer
		wait := h.Wait(map[bool]time.Duration{true: 5 * time.Minute}[len(words) == 1])
		r.waits[words[0]] = &wait
	case "begins":
		h.Begin(uint64(n))
	case "ends":
		h.End(uint64(n))
	case "is", "not":
		state, _ := h.State()
		flags := map[string]bool{
			state: true, "preferred": r.up(i), "usable": h.Usable(), "silent": h.Silent(r.now.Sub(r.born)), "suspected": h.Suspected(), "closed": h.Closed(),
			"unreached": h.Unreached(), "heard": h.HasAnswered(),
		}
		if slices.ContainsFunc(words, func(word string) bool { return flags[word] != (verb == "is") }) {
			return fmt.Sprint(flags)
		}
	case "why":
		if _, why := h.State(); !strings.Contains(why, rest) {
			return why
		}
	default:
		r.t.Fatalf("no step is called %q", verb)
	}
	return rest
}

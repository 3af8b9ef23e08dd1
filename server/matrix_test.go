package server_test

import (
	"fmt"
	"io"
	"log"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"carryover/server/turn"
)

// The matrix: every fault in every phase of a turn, of streams and of whole answers, with a ticket and without one, and where it
// matters with every answer to failures of prefill. Each cell says what the client sees, what engines see, and what is left.

// fault is one way in which something fails in one phase of a turn.
type fault struct {
	row, phase, name string           // row is that of the failure model, B-01 to B-54
	begin            func(c *cell)    // brings the fault about, when the ticket is there
	want             [3]string        // what cells assert, see expects, for each of the modes
	shows            func(leg) string // what the client gets of the last decode leg, before an error event; nil is all that decodes says

	modes   bool // it matters what becomes of turns whose prefill leg failed
	heavy   bool // it moves so many bytes that no time limit can be short meanwhile: its cells run by themselves, one by one
	watched bool // the rig tells when the proxy has noticed that the client has left
	setup   setup
	short   *shortLimits                 // of the leg that meets the fault, nil for none
	ask     func(c *cell) reply          // nil sends the turn
	heal    func(c *cell)                // ends the fault, besides what every cell does; nil for nothing
	except  func(v variant) (why string) // why a variant means nothing, "" if it does; nil if all do
}

// option is what a fault has that others have not.
type option func(f *fault)

// row is a fault of a row of the failure model.
func row(id, name string, begin func(*cell), want string, options ...option) fault {
	f := fault{row: id, name: name, begin: begin, want: [3]string{want, want, want}}
	for _, change := range options {
		change(&f)
	}
	return f
}

// during says in which phase faults happen.
func during(phase string, faults ...fault) []fault {
	for i := range faults {
		faults[i].phase = phase
	}
	return faults
}

// modes are the answers to failures of prefill; the first is the default.
var modes = []turn.PrefillFailure{turn.PrefillRetryOther, turn.PrefillDecodeOnly, turn.PrefillError}

// inModes has a fault met in all modes. What differs from the default is told of the others.
func inModes(others ...string) option {
	return func(f *fault) {
		f.modes = true
		copy(f.want[1:], others)
	}
}

// asserted are the names of what a cell asserts.
var asserted = strings.Fields(`
	gone unheard status code retry reuse path cut
	prefill decode rescued
	stored kept unused next pair`)

// expects is what a cell asserts: words, where later ones replace earlier ones. "name" means yes, and "ticket:" and "whole:" say of which turns. What stands
// behind "|" is expected without one. Of the client's side:
//
//	gone     it has left; the log says how its turn ended
//	unheard  it has left before there was a turn
//	status   200 if it is not named
//	code     of the error body; of a stream that has begun, of its last event
//	retry    Retry-After
//	reuse    X-KV-Reuse begins with it
//	path     X-KV-Path begins with it
//	cut      the answer breaks off
//
// Of the engines': prefill and decode are the kinds of the turn's legs, in order, see cell.saw; "first" is the leg that a ticket goes with. rescued
// means that a leg of our own has taken, or has tried to take, a hand-over that decode has not taken. Of what is left:
//
//	stored   of the log line
//	kept     the store has a ticket of the conversation
//	unused   decode has named blocks that no ticket in the store names; they wait for their release
//	next     X-KV-Reuse of the conversation's next turn, if it does not follow from kept
//	pair     X-KV-Reuse of the first ticket of another conversation, if it is no hit
func (f *fault) expects(t *testing.T, v variant) map[string]string {
	t.Helper()
	text, without, found := strings.Cut(f.want[max(0, slices.Index(modes, v.mode))], "|")
	if found && !v.ticket {
		text = without
	}
	want := map[string]string{"status": "200"}
	for _, word := range strings.Fields(text) {
		name, value, given := strings.Cut(word, "=")
		when, meant, conditional := strings.Cut(name, ":")
		if conditional {
			name = meant
		}
		if !slices.Contains(asserted, name) {
			t.Fatalf("%s is no word", name)
		}
		if !given {
			value = "yes"
		}
		if !conditional || when == "ticket" && v.ticket || when == "whole" && !v.stream {
			want[name] = strings.ReplaceAll(value, ",", " ")
		}
	}
	return want
}

// variant is how a client asks, with what the conversation holds, and how the proxy is set.
type variant struct {
	stream, ticket bool
	mode           turn.PrefillFailure
}

func (v variant) String() string {
	name := map[bool]string{true: "stream, ", false: "whole, "}[v.stream] + map[bool]string{true: "with ticket", false: "without ticket"}[v.ticket]
	if v.mode != "" {
		name += ", " + string(v.mode)
	}
	return name
}

// variants are all that there may be of a fault.
func (f *fault) variants() (all []variant) {
	of := []turn.PrefillFailure{""} // the default
	if f.modes {
		of = modes
	}
	for _, stream := range []bool{true, false} {
		for _, ticket := range []bool{true, false} {
			for _, mode := range of {
				all = append(all, variant{stream, ticket, mode})
			}
		}
	}
	return all
}

// without leaves out the variants of a fault that mean nothing.
func without(mean func(v variant) bool, why string) option {
	return func(f *fault) {
		f.except = func(v variant) string {
			if mean(v) {
				return ""
			}
			return why
		}
	}
}

// takesSeconds is why a slow fault has one cell: what the others would show, faster faults do.
const takesSeconds = "it takes seconds, and shows nothing that a faster fault does not"

var (
	onlyStreams = without(func(v variant) bool { return v.stream }, "a whole answer has no events")
	onlyWhole   = without(func(v variant) bool { return !v.stream }, "a stream is not one JSON object")
	onlyTickets = without(func(v variant) bool { return v.ticket }, "there is no ticket to lose")
	once        = without(func(v variant) bool { return v.stream && v.ticket }, takesSeconds)
)

// matrixWorkers is how many cells run at once: many of them wait for a time limit.
const matrixWorkers = 8

// matrixRows are the rows of the failure model that the matrix has to show.
func matrixRows() (rows []string) {
	for n := 1; n <= 54; n++ {
		if n <= 30 || n == 45 || n == 46 || n >= 51 {
			rows = append(rows, fmt.Sprintf("B-%02d", n))
		}
	}
	return rows
}

func matrixFaults() []fault {
	return slices.Concat(
		slowFaults(), // first, because they take longest
		prefillDialFaults(), prefillRefusals(), prefillFailures(), prefillAnswers(), prefillTimeouts(),
		decodeDialFaults(), decodeFailures(), decodeTimeouts(), wholeAnswerFaults(),
		streamFaults(), streamEnds(), sendingFaults(), leavingFaults(), restartFaults(), connectionFaults(), nameFaults(),
	)
}

func TestMatrix(t *testing.T) {
	log.SetOutput(io.Discard) // net/http reports there what engines send unasked
	defer log.SetOutput(os.Stderr)
	running := goleak.IgnoreCurrent()

	faults := matrixFaults()
	light, heavy, left := cellsOf(t, faults)
	every := 1
	if testing.Short() { // a third of the cells is seen in a third of the time
		every = 3
	}
	queue := make(chan job)
	var workers sync.WaitGroup
	for range matrixWorkers {
		workers.Go(func() {
			for j := range queue {
				j.run(t)
			}
		})
	}
	for i := 0; i < len(light); i += every {
		queue <- light[i]
	}
	close(queue)
	workers.Wait()
	for i := 0; i < len(heavy); i += every {
		heavy[i].run(t)
	}
	goleak.VerifyNone(t, running)

	cells := map[string]int{}
	for _, j := range slices.Concat(light, heavy) {
		cells[j.row]++
	}
	t.Logf("%d cells: %d faults in a phase, in %d rows", len(light)+len(heavy), len(faults), len(cells))
	for _, row := range matrixRows() {
		if cells[row] == 0 {
			t.Errorf("no cell shows %s", row)
		}
		t.Logf("%s: %d cells", row, cells[row])
	}
	for _, why := range slices.Sorted(maps.Keys(left)) {
		t.Logf("left out: %d, since %s", left[why], why)
	}
}

// job is a cell that is to be run.
type job struct {
	*fault
	variant
}

func (j job) run(t *testing.T) {
	t.Run(j.phase+"/"+j.name+"/"+j.String(), func(t *testing.T) { j.fault.run(t, j.variant) })
}

// cellsOf returns the cells of faults, and how many variants mean nothing, by the reason.
func cellsOf(t *testing.T, faults []fault) (light, heavy []job, left map[string]int) {
	t.Helper()
	left = map[string]int{}
	names := map[string]bool{}
	for i := range faults {
		f := &faults[i]
		if name := f.phase + "/" + f.name; names[name] {
			t.Fatalf("two faults are called %s", name)
		} else {
			names[name] = true
		}
		for _, v := range f.variants() {
			why := ""
			if f.except != nil {
				why = f.except(v)
			}
			switch {
			case why != "":
				left[why]++
			case f.heavy:
				heavy = append(heavy, job{f, v})
			default:
				light = append(light, job{f, v})
			}
		}
	}
	return light, heavy, left
}

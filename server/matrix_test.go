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
	row   string // of the failure model, B-01 to B-54
	phase string
	name  string
	modes bool // it matters what becomes of turns whose prefill leg failed
	heavy bool // it moves so many bytes that no time limit can be short meanwhile: its cells run by themselves, one by one

	needs  func(c *cell, s *setup) // beyond one engine of each role; nil for nothing
	begin  func(c *cell)           // brings the fault about, when the ticket is there
	ask    func(c *cell) reply     // nil sends the turn
	heal   func(c *cell)           // ends the fault, besides what every cell does; nil for nothing
	want   func(v variant) want
	except func(v variant) (why string) // why a variant means nothing, "" if it does; nil if all do
}

// variant is how a client asks, with what the conversation holds, and how the proxy is set.
type variant struct {
	stream, ticket bool
	mode           turn.PrefillFailure
}

func (v variant) String() string {
	words := []string{"whole", "without ticket"}
	if v.stream {
		words[0] = "stream"
	}
	if v.ticket {
		words[1] = "with ticket"
	}
	if v.mode != "" {
		words = append(words, string(v.mode))
	}
	return strings.Join(words, ", ")
}

// retries reports whether another prefill leg follows one that failed.
func (v variant) retries() bool { return v.mode == "" || v.mode == turn.PrefillRetryOther }

// variants are all that there may be of a fault.
func (f *fault) variants() (all []variant) {
	modes := []turn.PrefillFailure{""} // the default
	if f.modes {
		modes = []turn.PrefillFailure{turn.PrefillRetryOther, turn.PrefillDecodeOnly, turn.PrefillError}
	}
	for _, stream := range []bool{true, false} {
		for _, ticket := range []bool{true, false} {
			for _, mode := range modes {
				all = append(all, variant{stream, ticket, mode})
			}
		}
	}
	return all
}

// Why a variant of a fault means nothing.
func onlyStreams(v variant) string {
	if v.stream {
		return ""
	}
	return "a whole answer has no events"
}

func onlyWhole(v variant) string {
	if v.stream {
		return "a stream is not one JSON object"
	}
	return ""
}

func onlyTickets(v variant) string {
	if v.ticket {
		return ""
	}
	return "there is no ticket to lose"
}

// takesSeconds is why a slow fault has one cell: what the others would show, faster faults do.
const takesSeconds = "it takes seconds, and shows nothing that a faster fault does not"

func once(v variant) string {
	if v.stream && v.ticket {
		return ""
	}
	return takesSeconds
}

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
		streamFaults(), streamEnds(), goneFaults(), restartFaults(), connectionFaults(), nameFaults(),
	)
}

func TestMatrix(t *testing.T) {
	log.SetOutput(io.Discard) // net/http reports there what engines send unasked
	defer log.SetOutput(os.Stderr)
	running := goleak.IgnoreCurrent()

	faults := matrixFaults()
	light, heavy, left := cellsOf(t, faults)
	queue := make(chan job)
	var workers sync.WaitGroup
	for range matrixWorkers {
		workers.Go(func() {
			for j := range queue {
				j.run(t)
			}
		})
	}
	for _, j := range light {
		queue <- j
	}
	close(queue)
	workers.Wait()
	for _, j := range heavy {
		j.run(t)
	}
	goleak.VerifyNone(t, running)

	cells := map[string]int{}
	for _, j := range slices.Concat(light, heavy) {
		cells[j.fault.row]++
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
	fault   *fault
	variant variant
}

func (j job) run(t *testing.T) {
	t.Run(j.fault.phase+"/"+j.fault.name+"/"+j.variant.String(), func(t *testing.T) { j.fault.run(t, j.variant) })
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

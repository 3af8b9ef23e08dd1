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

	"carryover/server"
)

// The matrix: every fault in every phase of a turn, of streams and of whole answers, with a ticket and without one, and where it
// matters with every answer to failures of prefill. Each cell says what the client sees, what engines see, and what is left.

// fault is one way in which something fails in one phase of a turn.
type fault struct {
	row   string // of the failure model, B-01 to B-54
	phase string
	name  string
	modes bool // it matters what becomes of turns whose prefill leg failed

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
	mode           server.PrefillFailure
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

// variants are all that there may be of a fault.
func (f *fault) variants() (all []variant) {
	modes := []server.PrefillFailure{""} // the default
	if f.modes {
		modes = []server.PrefillFailure{server.PrefillRetryOther, server.PrefillDecodeOnly, server.PrefillError}
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

// once is for faults that take seconds: what differs is tested with faster ones.
func once(v variant) string {
	if v.stream && v.ticket {
		return ""
	}
	return "it takes seconds, and differs in nothing from a faster fault"
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

	type job struct {
		fault   *fault
		variant variant
	}
	var jobs []job
	cells, left := map[string]int{}, map[string]int{}
	names := map[string]bool{}
	faults := matrixFaults()
	for i := range faults {
		f := &faults[i]
		if name := f.phase + "/" + f.name; names[name] {
			t.Fatalf("two faults are called %s", name)
		} else {
			names[name] = true
		}
		for _, v := range f.variants() {
			if f.except != nil {
				if why := f.except(v); why != "" {
					left[why]++
					continue
				}
			}
			jobs = append(jobs, job{f, v})
			cells[f.row]++
		}
	}
	queue := make(chan job)
	var workers sync.WaitGroup
	for range matrixWorkers {
		workers.Go(func() {
			for j := range queue {
				t.Run(j.fault.phase+"/"+j.fault.name+"/"+j.variant.String(), func(t *testing.T) { j.fault.run(t, j.variant) })
			}
		})
	}
	for _, j := range jobs {
		queue <- j
	}
	close(queue)
	workers.Wait()
	goleak.VerifyNone(t, running)

	t.Logf("%d rows, %d faults in a phase, %d cells", len(cells), len(faults), len(jobs))
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

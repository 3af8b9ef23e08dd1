package bench

import (
	"fmt"
	"math"

	"carryover/cmd/pdbench/contender"
)

// bar is one thing that Carryover has to hold, computed from the medians of one run.
type bar struct {
	name  string
	how   string // in words, as in docs/benchmarks.md
	value func(*reader) float64
	must  float64 // 0 for none
	aim   float64
	least bool   // the value must be at least this, not at most
	unit  string // "" for a ratio
}

// gapAllowance is how much longer than two gaps the longest of a hundred gaps may be.
const gapAllowance = 5.0 // ms

// bars returns all bars, in the order of the table.
func bars() []bar {
	of := func(w string, f figure, than string) func(*reader) float64 {
		return func(r *reader) float64 { return r.get(w, contender.Carryover, f) / r.get(w, than, f) }
	}
	ours := func(w string, f figure) func(*reader) float64 {
		return func(r *reader) float64 { return r.get(w, contender.Carryover, f) }
	}
	beyond := func(w, base string) func(*reader) float64 { // in ms
		return func(r *reader) float64 {
			return (r.get(w, contender.Carryover, cpuTurn) - r.get(base, contender.Carryover, cpuTurn)) / 1000
		}
	}
	added := func(r *reader) float64 {
		direct := r.get(w4, contender.Direct, firstP50)
		return (r.get(w4, contender.Carryover, firstP50) - direct) / (r.get(w4, contender.Python, firstP50) - direct)
	}
	chunks := func(w, base string) func(*reader) float64 {
		return func(r *reader) float64 {
			return r.get(w, contender.Carryover, cpuChunk) / r.get(base, contender.Carryover, cpuChunk)
		}
	}
	gap := 2*float64(tokenGap.Milliseconds()) + gapAllowance
	return []bar{
		{"W1: CPU per request, of python", "CPU per request of carryover ÷ that of python", of(w1, cpuTurn, contender.Python), 1.0 / 15, 1.0 / 18, false, ""},
		{"W1: CPU per request, of nginx", "CPU per request of carryover ÷ that of nginx", of(w1, cpuTurn, contender.Nginx), 0, 2.2, false, ""},
		{"W2s: CPU per chunk, of python", "CPU per chunk of carryover ÷ that of python", of(w2s, cpuChunk, contender.Python), 1.0 / 4, 0, false, ""},
		{"W2s: CPU per chunk, of nginx", "CPU per chunk of carryover ÷ that of nginx", of(w2s, cpuChunk, contender.Nginx), 2.2, 0, false, ""},
		{"W2s: CPU per chunk, of relay", "CPU per chunk of carryover ÷ that of relay", of(w2s, cpuChunk, contender.Relay), 0, 1.5, false, ""},
		{"W2s: CPU per chunk of vLLM 0.33, of one of 0.32", "CPU per chunk of carryover at W2s 0.33 ÷ at W2s 0.32", chunks(w2sNewer, w2sOlder), 1.05, 0, false, ""},
		{"W2: delivered chunks, of direct", "chunks that clients got in a second through carryover ÷ directly", of(w2, chunkRate, contender.Direct), 0.97, 0.99, true, ""},
		{"W2: gap between chunks, p99", "99th percentile of gaps between chunks as clients got them through carryover; two gaps of 20 ms and 5 ms",
			ours(w2, gapP99), 0, gap, false, "ms"},
		{"W3: CPU per request, of python", "CPU per request of carryover ÷ that of python", of(w3, cpuTurn, contender.Python), 1.0 / 4, 1.0 / 12, false, ""},
		{"W3: requests per second, of direct", "requests per second through carryover ÷ directly", of(w3, turnRate, contender.Direct), 0, 0.65, true, ""},
		{"W4: time to the first token that is added, of python", "median time to the first token through carryover less the direct one ÷ that through python less the direct one",
			added, 1.0 / 5, 1.0 / 6, false, ""},
		{"W5: memory per open stream, 2 KB", "resident memory of carryover with 5,000 open streams less that before, ÷ 5,000", ours(w5Small, streamKB), 70, 40, false, "KB"},
		{"W5: memory per open stream, 64 KB", "the same with bodies of 64 KB", ours(w5Large, streamKB), 95, 45, false, "KB"},
		{"W5: memory of 9,000 open streams", "most resident memory of carryover while 9,000 streams are opened and held, none of which fails", ours(w5Many, peakMB), 600, 350, false, "MB"},
		{"W1: requests per second, of direct", "requests per second through carryover ÷ directly", of(w1, turnRate, contender.Direct), 0, 0.5, true, ""},
		{"token proof of 8,000 tokens, per request", "CPU per request of carryover at T plug-in less that at T off", beyond(tPlug, tOff), 0.6, 0.3, false, "ms"},
		{"ids in each chunk: CPU per chunk", "CPU per chunk of carryover at T2s chunks ÷ at W2s, where it relays and no more", chunks(t2sChunks, w2s), 1.6, 1.3, false, ""},
	}
}

// reader gives medians to a bar, and remembers the first one that is missing.
type reader struct {
	results []entry
	missing *verdict // says which figure was missing first
}

// get returns a median, or NaN.
func (r *reader) get(w, name string, f figure) float64 {
	word, why := notMeasured, "not in this run"
	for _, entry := range r.results {
		if entry.Workload.Name != w || entry.Contender != name {
			continue
		}
		value, ok := entry.Median[f]
		switch {
		case entry.NotMeasured != "":
			why = name + ": " + entry.NotMeasured
		case len(entry.Wrong) > 0:
			word, why = doesNotCount, fmt.Sprintf("%s at %s: %s", name, w, entry.Wrong[0])
		case !ok:
			word, why = doesNotCount, fmt.Sprintf("%s at %s: no %s", name, w, f)
		default:
			return value
		}
	}
	if r.missing == nil || r.missing.Word == notMeasured {
		r.missing = &verdict{Word: word, Why: why}
	}
	return math.NaN()
}

type word string

// The results of a bar.
const (
	holds        word = "holds"
	reached      word = "aim reached"
	fails        word = "fails"
	short        word = "aim missed" // the aim of a bar without a must
	notMeasured  word = "not measured"
	doesNotCount word = "does not count"
)

type verdict struct {
	Name  string  `json:"name"`
	How   string  `json:"how"`
	Value float64 `json:"value"` // 0 if there is none
	Unit  string  `json:"unit,omitempty"`
	Must  float64 `json:"must,omitempty"`
	Aim   float64 `json:"aim,omitempty"`
	Least bool    `json:"least,omitempty"`
	Word  word    `json:"word"`
	Why   string  `json:"why,omitempty"` // why there is no value
}

// judge compares results with the bars.
func judge(results []entry) []verdict {
	var verdicts []verdict
	for _, b := range bars() {
		from := &reader{results: results}
		v := verdict{Name: b.name, How: b.how, Value: b.value(from), Unit: b.unit, Must: b.must, Aim: b.aim, Least: b.least}
		switch {
		case from.missing != nil:
			v.Value, v.Word, v.Why = 0, from.missing.Word, from.missing.Why
		case math.IsInf(v.Value, 0) || math.IsNaN(v.Value):
			v.Value, v.Word, v.Why = 0, doesNotCount, "divided by nothing"
		default:
			v.Word = b.stands(v.Value)
		}
		verdicts = append(verdicts, v)
	}
	return verdicts
}

func (b bar) stands(value float64) word {
	meets := func(limit float64) bool {
		if b.least {
			return value >= limit
		}
		return value <= limit
	}
	switch {
	case b.must != 0 && !meets(b.must):
		return fails
	case b.aim != 0 && meets(b.aim):
		return reached
	case b.must != 0:
		return holds
	}
	return short
}

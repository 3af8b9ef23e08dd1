package main

import (
	"encoding/json"
	"fmt"
	"os"
	"time"
)

// report is all that a run has shown.
type report struct {
	Began    time.Time     `json:"began"`
	Took     time.Duration `json:"took"`
	Brief    bool          `json:"brief"` // a smoke run, whose figures say nothing
	Machine  machine       `json:"machine"`
	Results  []result      `json:"results"`
	Verdicts []verdict     `json:"verdicts"`
}

// result is one contender at one workload.
type result struct {
	Workload    workload  `json:"workload"`
	Contender   string    `json:"contender"`
	NotMeasured string    `json:"not_measured,omitempty"` // why it could not be
	Wrong       []string  `json:"wrong,omitempty"`        // why it does not count
	Rounds      []figures `json:"rounds,omitempty"`
	Median      figures   `json:"median,omitempty"`
}

// add takes in what a round has shown.
func (r *result) add(o outcome) {
	f := figuresOf(r.Workload, o)
	r.Rounds = append(r.Rounds, f)
	r.Median = mediansOf(r.Rounds)
	wrong := func(format string, a ...any) {
		r.Wrong = append(r.Wrong, fmt.Sprintf("round %d: ", len(r.Rounds))+fmt.Sprintf(format, a...))
	}
	if o.Errors > 0 {
		wrong("%d errors, %d turns in full", o.Errors, o.Turns)
	}
	if o.Faults.any() {
		wrong("%d mix-ups, %d legs with wrong members, %d hand-overs or tickets used twice, %d leaks",
			o.Faults.MixUps, o.Faults.Flags, o.Faults.Twice, o.Faults.Leaks)
	}
	if o.Turns == 0 && o.Chunks == 0 && !r.Workload.Open {
		wrong("no answers")
	}
	if reuses(r.Contender) && r.Workload.reuses() && o.Hits == 0 && o.Turns > 2*r.Workload.Conversations { // with fewer, none may be a second one
		wrong("no turn has reused anything")
	}
	if r.Workload.Open && o.Streams < r.Workload.Conversations {
		wrong("%d of %d streams were open at once", o.Streams, r.Workload.Conversations)
	}
}

// reuses reports whether a contender hands the KV of a conversation over.
func reuses(contender string) bool {
	return contender == nameCarryover || contender == nameCarryoverStd || contender == namePython
}

// Exit codes.
const (
	exitOK          = 0
	exitFailed      = 1 // a bar that must hold does not, or something does not count
	exitUsage       = 2 // asked wrongly, or not able to measure
	exitNotMeasured = 3 // a bar is not measured, and nothing else is wrong
)

// exit says how the run has ended.
func (r report) exit() int {
	code := exitOK
	for _, v := range r.Verdicts {
		switch v.Word {
		case fails, doesNotCount:
			return exitFailed
		case notMeasured:
			code = exitNotMeasured
		}
	}
	for _, result := range r.Results {
		if len(result.Wrong) > 0 {
			return exitFailed
		}
	}
	return code
}

// write writes JSON, tables and plot into files.
func (r report) write(base string) error {
	text, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return err
	}
	for ending, content := range map[string][]byte{".json": text, ".md": []byte(r.markdown()), ".svg": []byte(r.plot())} {
		if err := os.WriteFile(base+ending, content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// readReport reads what write has written.
func readReport(file string) (r report, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return report{}, err
	}
	if err := json.Unmarshal(text, &r); err != nil {
		return report{}, fmt.Errorf("%s: %w", file, err)
	}
	return r, nil
}

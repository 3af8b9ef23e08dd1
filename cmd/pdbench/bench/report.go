package bench

import (
	"encoding/json"
	"fmt"
	"os"
	"time"

	"carryover/cmd/pdbench/contender"
	"carryover/cmd/pdbench/load"
	"carryover/cmd/pdbench/result"
)

type report struct {
	Began    time.Time     `json:"began"`
	Took     time.Duration `json:"took"`
	Brief    bool          `json:"brief"` // a smoke run, whose figures mean nothing
	Machine  machine       `json:"machine"`
	Results  []entry       `json:"results"`
	Verdicts []verdict     `json:"verdicts"`
}

// entry is one contender at one workload.
type entry struct {
	Workload    load.Workload `json:"workload"`
	Contender   string        `json:"contender"`
	NotMeasured string        `json:"not_measured,omitempty"` // why it was not measured
	Wrong       []string      `json:"wrong,omitempty"`        // why it does not count
	Rounds      []figures     `json:"rounds,omitempty"`
	Median      figures       `json:"median,omitempty"`
}

func (r *entry) add(o load.Outcome) {
	f := figuresOf(r.Workload, o)
	r.Rounds = append(r.Rounds, f)
	r.Median = mediansOf(r.Rounds)
	wrong := func(format string, a ...any) {
		r.Wrong = append(r.Wrong, fmt.Sprintf("round %d: ", len(r.Rounds))+fmt.Sprintf(format, a...))
	}
	if o.Errors > 0 {
		wrong("%d errors, %d turns in full", o.Errors, o.Turns)
	}
	if o.Faults.Any() {
		wrong("%d mix-ups, %d legs with wrong members, %d hand-overs or tickets used twice, %d leaks",
			o.Faults.MixUps, o.Faults.Flags, o.Faults.Twice, o.Faults.Leaks)
	}
	if o.Turns == 0 && o.Chunks == 0 && !r.Workload.Open {
		wrong("no answers")
	}
	if reuses(r.Contender) && r.Workload.Reuses() && o.Hits == 0 && o.Turns > 2*r.Workload.Conversations { // with fewer, there may be no next turn
		wrong("no turn has reused anything")
	}
	if r.Workload.Open && o.Streams < r.Workload.Conversations {
		wrong("%d of %d streams were open at once", o.Streams, r.Workload.Conversations)
	}
}

// reuses reports whether a contender hands the KV of a conversation over.
func reuses(name string) bool {
	return name == contender.Carryover || name == contender.Python
}

func (r report) exit() int {
	code := result.ExitOK
	for _, v := range r.Verdicts {
		switch v.Word {
		case fails, doesNotCount:
			return result.ExitFailed
		case notMeasured:
			code = result.ExitNotMeasured
		}
	}
	for _, entry := range r.Results {
		if len(entry.Wrong) > 0 {
			return result.ExitFailed
		}
	}
	return code
}

func (r report) write(base string) error {
	text, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return err
	}
	for ending, content := range map[string][]byte{".json": text, ".md": []byte(r.markdown())} {
		if err := os.WriteFile(base+ending, content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

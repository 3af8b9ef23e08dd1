package contender

import (
	"context"
	"errors"

	"carryover/cmd/pdbench/engines"
	"carryover/cmd/pdbench/load"
	"carryover/cmd/pdbench/process"
)

// Measure runs a workload once through the entrant, in front of these engines, and reads what its processes use meanwhile. The outcome
// records faults of the entrant; an error is a fault of pdbench.
func (e *Entrant) Measure(ctx context.Context, w load.Workload, pair *engines.Pair) (load.Outcome, error) {
	if err := pair.Reset(ctx); err != nil {
		return load.Outcome{}, err
	}
	var faults []error // of reading /proc
	read := func() process.Usage {
		if e.Measured == nil {
			return process.Usage{}
		}
		u, err := process.UsageOf(e.Measured.PID)
		faults = append(faults, err)
		return u
	}
	if e.Measured != nil {
		faults = append(faults, process.ResetPeak(e.Measured.PID))
	}
	var before, after process.Usage
	var held int64
	l := load.Clients{Workload: w, URL: e.URL, Direct: e.Direct, Hides: e.Hides,
		Begin: func() { before = read() },
		End:   func() { after = read() },
		Held:  func() { held = read().Resident },
	}
	o, err := l.Run(ctx)
	if err = errors.Join(append(faults, err)...); err != nil {
		return load.Outcome{}, err
	}
	o.CPU, o.Base, o.Peak, o.Held = after.CPU-before.CPU, before.Resident, after.Peak, held
	f, counts, err := pair.Faults(ctx)
	o.Faults, o.Hits, o.HandOvers = f, counts.Hits, counts.Decodes
	return o, err
}

package load

import (
	"carryover/cmd/pdbench/engines"
)

import "time"

// Workload says what clients do, and what engines answer them with. Sizes are in bytes.
type Workload struct {
	Name          string           `json:"name"` // as docs/benchmarks.md has it
	What          string           `json:"what"` // in one sentence
	Conversations int              `json:"conversations"`
	Turns         int              `json:"turns"` // of a conversation, before another takes its place
	First         int              `json:"first"` // the first user message
	Later         [2]int           `json:"later"` // least and most of each later one
	Stream        bool             `json:"stream"`
	Chunks        int              `json:"chunks"`           // of an answer, one token and one write each
	Gap           time.Duration    `json:"gap"`              // between chunks of one answer, 0 for none
	Apart         time.Duration    `json:"apart"`            // between chunks of the answers of one decode instance that come in the same step
	IDs           engines.IDSource `json:"ids"`              // how token ids are told
	VLLM          engines.Version  `json:"vllm"`             // whose answers the engines give, "" for what the run is asked for
	Proof         string           `json:"proof"`            // Carryover's --proof
	Redis         bool             `json:"redis"`            // tickets live there
	Memory        string           `json:"memory,omitempty"` // Carryover\'s GOMEMLIMIT
	Open          bool             `json:"open"`             // streams are opened and held; what counts is memory
	Contenders    []string         `json:"contenders"`       // by their names, in order
	Time          time.Duration    `json:"time"`             // of one measurement, after the warm-up
	WarmUp        time.Duration    `json:"warm_up"`          // the same load, not measured
}

// Proofs: Carryover's two, and a workload in which no request names a conversation.
const (
	ProofAuto    = "auto"
	ProofHistory = "history"
	NoProof      = "off"
)

// streamsOfInstance is how many streams a decode instance answers at once.
const streamsOfInstance = 100

// Pace is how engines answer.
func (w *Workload) Pace() engines.Pace {
	return engines.Pace{Chunks: w.Chunks, Gap: w.Gap, IDs: w.IDs, Instances: (w.Conversations + streamsOfInstance - 1) / streamsOfInstance, Apart: w.Apart, VLLM: w.VLLM}
}

// Reuses reports whether turns of the workload reuse what turns before have left, so that a measurement without hits is none.
func (w Workload) Reuses() bool { return w.Proof != NoProof && w.Turns > 1 && w.Gap == 0 }

// As returns the workload under another name, for other contenders.
func (w Workload) As(name, what string, contenders ...string) Workload {
	w.Name, w.What, w.Contenders = name, what, contenders
	return w
}

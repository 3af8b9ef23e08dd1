package load

import (
	"time"

	"carryover/cmd/pdbench/engines"
)

// Workload says what clients do, and how engines answer. Sizes are in bytes.
type Workload struct {
	Name          string          `json:"name"` // as in docs/benchmarks.md
	What          string          `json:"what"` // in one sentence
	Conversations int             `json:"conversations"`
	Turns         int             `json:"turns"` // of a conversation; then the next one begins
	First         int             `json:"first"` // the first user message
	Later         [2]int          `json:"later"` // least and most of each later message
	Stream        bool            `json:"stream"`
	Chunks        int             `json:"chunks"`     // of an answer, one token and one write each
	Gap           time.Duration   `json:"gap"`        // between chunks of one answer, 0 for none
	Apart         time.Duration   `json:"apart"`      // between chunks of one step, of answers of one decode instance
	ChunkIDs      bool            `json:"chunk_ids"`  // token ids come in each chunk, not in the last event
	VLLM          engines.Version `json:"vllm"`       // version of the engines' answers, "" for 0.33
	Nameless      bool            `json:"nameless"`   // no request names a conversation
	Redis         bool            `json:"redis"`      // tickets are in Redis
	Open          bool            `json:"open"`       // streams are opened and held, to measure memory
	Contenders    []string        `json:"contenders"` // by their names, in order
	Time          time.Duration   `json:"time"`       // of one measurement, after the warm-up
	WarmUp        time.Duration   `json:"warm_up"`    // the same load, not measured
}

// streamsOfInstance is how many streams a decode instance answers at once.
const streamsOfInstance = 100

// Pace returns how engines answer.
func (w *Workload) Pace() engines.Pace {
	return engines.Pace{Chunks: w.Chunks, Gap: w.Gap, ChunkIDs: w.ChunkIDs, Instances: (w.Conversations + streamsOfInstance - 1) / streamsOfInstance, Apart: w.Apart, VLLM: w.VLLM}
}

// Reuses reports whether turns reuse the KV of earlier turns, so that a measurement without hits does not count.
func (w Workload) Reuses() bool { return !w.Nameless && w.Turns > 1 && w.Gap == 0 }

// As returns the workload under another name, for other contenders.
func (w Workload) As(name, what string, contenders ...string) Workload {
	w.Name, w.What, w.Contenders = name, what, contenders
	return w
}

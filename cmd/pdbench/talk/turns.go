package talk

import (
	"strings"
	"time"

	"carryover/cmd/pdbench/result"
)

// Turn is a turn as its client saw it.
type Turn struct {
	Next   bool // not the first of its conversation
	Began  time.Time
	TTFT   time.Duration // wall time
	Reuse  string        // X-KV-Reuse
	Prompt int           // tokens, as the engine counts them
	Answer int
	Before int  // tokens of the turn before, prompt and answer
	Wrong  bool // the answer is not the ordered one
	Err    error
}

// Record has the turns of many conversations.
type Record []Turn

// Hits returns the share of answered next turns that reused KV, as their answers say.
func (r Record) Hits() float64 {
	hits, of := 0, 0
	for _, t := range r {
		if t.Err != nil || !t.Next {
			continue
		}
		of++
		if strings.HasPrefix(t.Reuse, "hit") {
			hits++
		}
	}
	return result.Share(hits, of)
}

// Failed returns the turns that failed.
func (r Record) Failed() (failed Record) {
	for _, t := range r {
		if t.Err != nil {
			failed = append(failed, t)
		}
	}
	return failed
}

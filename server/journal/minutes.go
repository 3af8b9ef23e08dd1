package journal

import (
	"slices"
	"time"

	"carryover/server/record"
)

// hour is how many minutes are kept.
const hour = 60

// Minute sums the turns that ended within one minute.
type Minute struct {
	At          time.Time `json:"at"` // when it began
	Turns       uint64    `json:"turns"`
	FollowUps   uint64    `json:"follow_ups"` // see Totals
	Tokens      uint64    `json:"follow_up_tokens"`
	Hits        uint64    `json:"hits"`
	SavedTokens uint64    `json:"saved_tokens"`
	// Timed are the hits whose times to the first token are summed, as measured and as they would have been without reuse (record.HitTTFT).
	Timed   uint64  `json:"timed"`
	TTFT    float64 `json:"ttft_ms"`
	Without float64 `json:"ttft_without_ms"`
}

// minutes are the last minutes that had turns: a minute is at its number since 1970, modulo their number.
type minutes [hour]Minute

func (m *minutes) add(now time.Time, r *TurnRecord, of *record.Turn) {
	began := now.UTC().Truncate(time.Minute)
	minute := &m[began.Unix()/60%hour]
	if !minute.At.Equal(began) {
		*minute = Minute{At: began}
	}
	minute.Turns++
	if r.FollowUp {
		minute.FollowUps++
		minute.Tokens += uint64(of.Prompt())
	}
	if r.Outcome == record.Hit {
		minute.Hits++
		if r.Read != nil {
			minute.SavedTokens += uint64(*r.Read)
		}
	}
	if with, without, ok := of.HitTTFT(); ok {
		minute.Timed++
		minute.TTFT += record.Milliseconds(with)
		minute.Without += record.Milliseconds(without)
	}
}

// Hour returns the minutes of the last hour that had turns, oldest first, from the one that began at from.
func (j *Journal) Hour(from time.Time) []Minute {
	oldest := j.now().Truncate(time.Minute).Add(-(hour - 1) * time.Minute)
	j.mu.Lock()
	defer j.mu.Unlock()
	last := []Minute{}
	for _, minute := range j.minutes {
		if minute.Turns > 0 && !minute.At.Before(oldest) && !minute.At.Before(from) {
			last = append(last, minute)
		}
	}
	slices.SortFunc(last, func(a, b Minute) int { return a.At.Compare(b.At) })
	return last
}

package journal

import (
	"maps"
	"slices"
	"time"

	"carryover/server/record"
)

// Sums are common to the totals and each minute.
type Sums struct {
	Turns uint64 `json:"turns"`
	Hits  uint64 `json:"hits"`
	// FollowUps are turns that could have reused something, so not the first ones of conversations. The share of hits is Hits / FollowUps.
	FollowUps uint64 `json:"follow_ups"`
	// FollowUpTokens are the prompt tokens of follow-ups. Prefill saved the share SavedTokens / FollowUpTokens.
	FollowUpTokens uint64 `json:"follow_up_tokens"`
	SavedTokens    uint64 `json:"saved_tokens"` // tokens that prefill did not compute because of hits
}

func (s *Sums) add(r *TurnRecord, of *record.Turn) {
	s.Turns++
	if r.FollowUp {
		s.FollowUps++
		s.FollowUpTokens += uint64(of.Prompt())
	}
	if r.Outcome == record.Hit {
		s.Hits++
		s.SavedTokens += uint64(r.Read)
	}
}

// Totals are sums over all turns since the start. Turns is Hits + Off + the sums of Prefixes and Misses.
type Totals struct {
	Since time.Time `json:"since"`
	Sums
	// EmptyHits are hits that saved nothing, by reason.
	EmptyHits map[string]uint64 `json:"empty_hits"`
	// Prefixes are turns with a part of the prompt in prefill's own caches, by the reason why they are no hit.
	Prefixes map[string]uint64 `json:"prefixes"`
	Off      uint64            `json:"off"`
	Misses   map[string]uint64 `json:"misses"` // by reason
	// FollowUpMisses are follow-ups without a hit, by reason.
	FollowUpMisses map[string]uint64 `json:"follow_up_misses"`
	Failed         uint64            `json:"failed"`        // the client got part of an answer, or an error that its request did not cause
	SavedSeconds   float64           `json:"saved_seconds"` // of prefill's time for SavedTokens, at its learnt speed

	// TTFTHits are measured times to the first token of hits. TTFTHitsWithout adds prefill's time for the tokens that it did not
	// compute. Both have the same turns: streams from instances with a known speed.
	TTFTHits        Histogram `json:"ttft_hits"`
	TTFTHitsWithout Histogram `json:"ttft_hits_without"`
	TTFTStreams     Histogram `json:"ttft_streams"`
	WholeAnswers    Histogram `json:"whole_answers"` // until an answer that came in one piece
}

// Bounds are the upper bounds of a Histogram's buckets in milliseconds; a last bucket has the rest.
func Bounds() []float64 {
	return []float64{5, 10, 20, 40, 80, 160, 320, 640, 1280, 2560, 5120, 10240, 20480, 40960, 81920}
}

// Histogram counts times.
type Histogram struct {
	Counts []uint64 `json:"counts"` // by bucket, one more than Bounds
	Sum    float64  `json:"sum_ms"`
}

func newTotals(now time.Time) Totals {
	empty := func() Histogram { return Histogram{Counts: make([]uint64, len(Bounds())+1)} }
	return Totals{
		Since: now, EmptyHits: map[string]uint64{}, Prefixes: map[string]uint64{}, Misses: map[string]uint64{}, FollowUpMisses: map[string]uint64{},
		TTFTHits: empty(), TTFTHitsWithout: empty(), TTFTStreams: empty(), WholeAnswers: empty(),
	}
}

// maxReasons bounds the distinct reasons. They are a closed set of this program; the bound is a second line of defence.
const maxReasons = 256

func (t *Totals) add(r *TurnRecord, of *record.Turn) {
	t.Sums.add(r, of)
	switch r.Outcome {
	case record.Hit:
		t.SavedSeconds += r.Saved / 1000
		if r.Reason != "" {
			countReason(t.EmptyHits, r.Reason)
		}
	case record.Prefix:
		countReason(t.Prefixes, r.Reason)
	case record.Off:
		t.Off++
	default:
		countReason(t.Misses, r.Reason)
	}
	if r.FollowUp && r.Outcome != record.Hit {
		countReason(t.FollowUpMisses, r.Reason)
	}
	if r.Failed() {
		t.Failed++
	}
	if without := of.TTFTWithout(); without > 0 {
		t.TTFTHits.add(r.TTFT)
		t.TTFTHitsWithout.add(record.Milliseconds(without))
	}
	if r.TTFT > 0 {
		t.TTFTStreams.add(r.TTFT)
	}
	if r.Whole > 0 {
		t.WholeAnswers.add(r.Whole)
	}
}

func countReason(by map[string]uint64, reason string) {
	if _, known := by[reason]; !known && len(by) >= maxReasons {
		reason = "other"
	}
	by[reason]++
}

func (h *Histogram) add(milliseconds float64) {
	at, _ := slices.BinarySearch(Bounds(), milliseconds)
	h.Counts[at]++
	h.Sum += milliseconds
}

func (t *Totals) clone() Totals {
	c := *t
	c.EmptyHits, c.Prefixes, c.Misses, c.FollowUpMisses = maps.Clone(t.EmptyHits), maps.Clone(t.Prefixes), maps.Clone(t.Misses), maps.Clone(t.FollowUpMisses)
	for _, h := range []*Histogram{&c.TTFTHits, &c.TTFTHitsWithout, &c.TTFTStreams, &c.WholeAnswers} {
		h.Counts = slices.Clone(h.Counts)
	}
	return c
}

const minutesKept = 60

// Minute sums the turns that ended within one minute.
type Minute struct {
	At time.Time `json:"at"`
	Sums
	// Timed counts the hits in TTFT and Without: as measured, and as without reuse (record.Turn.TTFTWithout).
	Timed   uint64  `json:"timed"`
	TTFT    float64 `json:"ttft_ms"`
	Without float64 `json:"ttft_without_ms"`
}

// minutes are the last minutes with turns, each at its number since 1970 modulo minutesKept.
type minutes [minutesKept]Minute

func (m *minutes) add(now time.Time, r *TurnRecord, of *record.Turn) {
	began := now.UTC().Truncate(time.Minute)
	minute := &m[began.Unix()/60%minutesKept]
	if !minute.At.Equal(began) {
		*minute = Minute{At: began}
	}
	minute.add(r, of)
	if without := of.TTFTWithout(); without > 0 {
		minute.Timed++
		minute.TTFT += r.TTFT
		minute.Without += record.Milliseconds(without)
	}
}

// Hour returns the minutes of the last hour that had turns, oldest first, from the one that began at from.
func (j *Journal) Hour(from time.Time) []Minute {
	oldest := j.now().Truncate(time.Minute).Add(-(minutesKept - 1) * time.Minute)
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

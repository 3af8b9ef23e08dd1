package journal

import (
	"maps"
	"net/http"
	"slices"
	"time"
)

// Totals are sums over all turns since the start. Turns is Hits + Off + the sum of Misses.
type Totals struct {
	Since  time.Time         `json:"since"`
	Turns  uint64            `json:"turns"`
	Hits   uint64            `json:"hits"`
	Off    uint64            `json:"off"`
	Misses map[string]uint64 `json:"misses"` // by reason
	Failed uint64            `json:"failed"` // turns whose client got part of an answer, or an error that was not its own request's
	// What hits saved prefill: tokens that it did not compute because of what was reused, and seconds at its learnt speed.
	SavedTokens  uint64  `json:"saved_tokens"`
	SavedSeconds float64 `json:"saved_seconds"`
	// TTFT of turns that went by prefill and decode and got an answer, by outcome.
	HitTTFT  Histogram `json:"hit_ttft"`
	MissTTFT Histogram `json:"miss_ttft"`
}

// Bounds are the upper bounds of a Histogram's buckets, in milliseconds; a last bucket has what is above.
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
	return Totals{Since: now, Misses: map[string]uint64{}, HitTTFT: empty(), MissTTFT: empty()}
}

// maxReasons bounds the reasons that are told apart. They are a closed set of this program; the bound is a second line.
const maxReasons = 256

func (t *Totals) add(r *TurnRecord) {
	t.Turns++
	switch r.Outcome {
	case Hit:
		t.Hits++
		if r.Read != nil {
			t.SavedTokens += uint64(*r.Read)
		}
		t.SavedSeconds += r.Saved / 1000
	case Off:
		t.Off++
	default:
		reason := r.Reason
		if _, known := t.Misses[reason]; !known && len(t.Misses) >= maxReasons {
			reason = "other"
		}
		t.Misses[reason]++
	}
	if r.failed() {
		t.Failed++
	}
	if r.TTFT > 0 && r.Path == "prefill_decode" {
		if r.Outcome == Hit {
			t.HitTTFT.add(r.TTFT)
		} else {
			t.MissTTFT.add(r.TTFT)
		}
	}
}

// failed reports whether a turn failed by no fault of its request: a client that asks for what can't be had, as often as it likes, says
// nothing of the fleet.
func (r *TurnRecord) failed() bool {
	switch r.Status {
	case http.StatusBadRequest, http.StatusNotFound, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
		return false
	}
	return r.Status != http.StatusOK || r.Code != "" || r.Kind != ""
}

func (h *Histogram) add(milliseconds float64) {
	at, _ := slices.BinarySearch(Bounds(), milliseconds)
	h.Counts[at]++
	h.Sum += milliseconds
}

func (t *Totals) clone() Totals {
	c := *t
	c.Misses = maps.Clone(t.Misses)
	c.HitTTFT.Counts, c.MissTTFT.Counts = slices.Clone(t.HitTTFT.Counts), slices.Clone(t.MissTTFT.Counts)
	return c
}

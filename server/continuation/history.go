package continuation

import (
	"container/list"
	"slices"
	"time"

	"carryover/account"
)

// maxSpans is the most spans of time into which the life of a ticket is divided.
const maxSpans = 14

// Counts are kept for an hour at most, by quarters.
const (
	quarters = 4
	quarter  = 15 * time.Minute
)

// history has the answers of one tenant and kind. The learner's lock guards it.
type history struct {
	learner *Learner
	kind    tenantKind
	at      *account.Place[*history] // in Learner.recent
	waiting []list.List              // answers without a next turn, by the span of their age when it was last examined
	recent  [quarters]struct {
		number int64 // quarters of an hour since 1970
		counts counts
	}
}

// counts are numbers of answers, by the span in which their wait ended.
type counts struct {
	reached   [maxSpans]uint32 // answers that waited to the end of the span, or were continued in it
	continued [maxSpans]uint32 // answers that were continued in the span
	known     uint32           // answers that were continued, or waited for Fixed
}

func (h *history) now(at time.Time) *counts {
	number := at.UnixNano() / int64(quarter)
	k := &h.recent[number%quarters]
	if k.number != number {
		k.number, k.counts = number, counts{}
	}
	return &k.counts
}

// pass moves waiting answers to the spans of their ages, and counts the spans that they have waited through. It forgets answers that wait too long.
func (h *history) pass(at time.Time) {
	for i := range h.waiting {
		for first := h.waiting[i].Front(); first != nil; first = h.waiting[i].Front() {
			a := first.Value.(*Answer)
			if at.Sub(a.at) < h.learner.waits[i+1] {
				break
			}
			c := h.now(at)
			c.reached[i]++
			if i == h.fixed() {
				c.known++
			}
			if i == len(h.waiting)-1 {
				h.learner.forget(a)
				continue
			}
			h.waiting[i].Remove(first)
			a.age, a.inAge = i+1, h.waiting[i+1].PushBack(a)
		}
	}
}

// fixed is the span at whose end an answer counts as known without a continuation.
func (h *history) fixed() int {
	i, _ := slices.BinarySearch(h.learner.waits, Fixed)
	return min(i, len(h.waiting)) - 1
}

func (h *history) continued(a *Answer, at time.Time) {
	c := h.now(at)
	c.reached[a.age]++
	c.continued[a.age]++
	if a.age <= h.fixed() {
		c.known++
	}
}

// counts sums up the last hour.
func (h *history) counts(at time.Time) (sum counts) {
	number := at.UnixNano() / int64(quarter)
	for i := range h.recent {
		k := &h.recent[i]
		if k.number <= number-quarters {
			continue
		}
		for span := range h.waiting {
			sum.reached[span] += k.counts.reached[span]
			sum.continued[span] += k.counts.continued[span]
		}
		sum.known += k.counts.known
	}
	return sum
}

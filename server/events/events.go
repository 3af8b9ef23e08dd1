// Package events keeps the last events of a replica for operators: quarantines, stopped pairs, drains, reloads, engines that go and come
// back, outages of the ticket store. The code that notices an event passes one plain sentence to [List.Tell], or to a function that List.Teller made. A List
// promises that
//
//   - its memory is bounded, whatever happens, and how often;
//   - adding an event takes a lock for some microseconds, and waits for no reader.
package events

import (
	"slices"
	"sync"
	"time"
	"unicode/utf8"
)

// Kind is what an event is about.
type Kind string

// The kinds of events.
const (
	Quarantine Kind = "quarantine" // an engine computes other ids than it is sent, or has had KV of such an engine
	Drain      Kind = "drain"      // an instance, or this replica, gets no new turns
	Reload     Kind = "reload"     // the configuration was read again
	Engine     Kind = "engine"     // an engine came, went or was restarted; it or a pair is avoided, or not any more
	Store      Kind = "store"      // the ticket store does not answer, or does again
)

const (
	most     = 100 // events
	mostText = 300 // bytes of a sentence
)

// Event is one event, or several in the same words.
type Event struct {
	At    time.Time `json:"at"` // when it happened last
	Kind  Kind      `json:"kind"`
	Text  string    `json:"text"`
	Times int       `json:"times"`
}

// List keeps the last 100 events. The zero value is empty and ready. It is safe for concurrent use.
type List struct {
	mu     sync.Mutex // guards the rest
	events []Event    // oldest first
	told   uint64     // events ever added
}

// Tell adds an event. The sentence must hold nothing of a client.
func (l *List) Tell(kind Kind, sentence string) { l.add(Event{time.Now(), kind, clip(sentence), 1}) }

// Teller returns a function that adds events of a kind, one sentence each.
func (l *List) Teller(kind Kind) func(sentence string) {
	return func(sentence string) { l.Tell(kind, sentence) }
}

// add appends an event. An equal one moves to the end, so that an engine that restarts often pushes nothing else out.
func (l *List) add(e Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at := slices.IndexFunc(l.events, func(other Event) bool { return other.Kind == e.Kind && other.Text == e.Text }); at >= 0 {
		e.Times += l.events[at].Times
		l.events = slices.Delete(l.events, at, at+1)
	}
	if len(l.events) == most {
		l.events = slices.Delete(l.events, 0, 1)
	}
	l.events = append(l.events, e)
	l.told++
}

// Newest returns the events, newest first, and how many were ever added. If that is the number that the caller knows, it returns no events.
func (l *List) Newest(known uint64) (events []Event, told uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.told == known {
		return nil, known
	}
	events = slices.Clone(l.events)
	slices.Reverse(events)
	return events, l.told
}

// clip bounds a sentence, which may have the text of another program at its end.
func clip(sentence string) string {
	if len(sentence) <= mostText {
		return sentence
	}
	end := mostText
	for end > 0 && !utf8.RuneStart(sentence[end]) {
		end--
	}
	return sentence[:end] + "…"
}

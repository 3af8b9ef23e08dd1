// Package continuation learns which answers are continued and after how long. From that it decides what becomes of an answer's ticket.
//
//   - learner.go: the kinds of answers, what callers report, and the bounds of memory
//   - history.go: the waiting answers of one kind, and the counts of those that ended
//   - curve.go: the chance, by these counts, that an answer is continued after a time
//   - rule.go: the costs of keeping a ticket, handing it back and releasing it, and the choice of the least
//
// # Signals
//
// The learner remembers the conversation key of each answer and compares it with the keys of later turns. It needs no ticket for that, so it also
// sees the continuation of an answer whose ticket was released at once. A turn continues an answer if one of its keys is the answer's key and
//
//   - the conversation has an explicit id, or
//   - the key belongs to an earlier part of the request's history, or
//   - the key belongs to the whole request and the answer called tools: results of tools are no part of a key by content.
//
// Text completions with the same instruction share a key. A turn continues the completion whose whole prompt is the beginning of the turn's prompt.
//
// A request with examples (assistant messages that no model of this deployment has written) has keys that no answer had, so it continues none. An
// equal request that is sent again continues none either.
//
// If a request offers tools and the engine has not told the answer's finish_reason, the answer has a kind of its own (Kind.Unread). Such answers
// teach nothing about answers that leave tickets, but their next turns count for the coverage.
//
// # Several replicas
//
// A replica sees only the turns that it serves. If clients may change replicas, it misses some continuations of its own answers. So it divides its
// chances by its coverage. The coverage counts turns for which the shared store has a ticket or a note: it is the share whose previous answer this
// replica gave. With n equal replicas that is 1/n, and each chance is multiplied by n. The distribution of times needs no correction. If turns find
// nothing in the store, because everything is released, the last coverage stays.
//
// # Forgetting
//
// Counts belong to one of four quarters of an hour; the oldest is dropped when the fifth begins.
package continuation

import (
	"container/list"
	"math"
	"slices"
	"sync"
	"time"

	"carryover/account"
	"carryover/convcache"
	"carryover/upstream/body"
)

// Bounds of a learner's memory, 8 MB in all, and of its work for a turn.
const (
	maxKinds   = 1024   // pairs of a tenant and a kind
	maxPending = 16_384 // waiting answers; beyond that the oldest one of the account with most is forgotten, and counts for the time that it was seen to wait
	maxAlike   = 1024   // waiting answers under one key that a turn is compared with, the newest first
)

// Learner knows how often and after how long answers are continued, by tenant and kind. It is safe for concurrent use.
type Learner struct {
	waits []time.Duration // see Curve

	mu      sync.Mutex // guards the rest
	kinds   map[tenantKind]*history
	recent  account.Pool[*history]      // the values of kinds, in the order of use
	pending map[convcache.Key][]*Answer // waiting answers by key, the newest at the end
	oldest  account.Pool[*Answer]       // waiting answers, the oldest first
	// own counts turns whose conversation is in the store and whose previous answer this replica gave; others, whose previous answer another one gave.
	own, others float64
}

// Kind tells answers apart by what the request and the end of the answer show. There are 80 kinds for each tenant.
type Kind struct {
	API       body.API
	FollowUp  bool // the request has an assistant message
	Tools     bool // the request offers tools
	ToolCalls bool // the answer ended with calls of tools
	Unread    bool // the request offers tools, and the engine has not told whether the answer called any
	Explicit  bool // the client named the conversation; otherwise its key comes from the content
}

type tenantKind struct {
	tenant string
	kind   Kind
}

// Answer is an answer that waits for its next turn.
type Answer struct {
	key     convcache.Key
	prompt  body.Beginning // of a text completion, which shares its key with others; zero for other answers
	of      *history
	at      time.Time
	inOrder *account.Place[*Answer] // in Learner.oldest
	inAge   *list.Element           // in history.waiting, nil once the answer waits no longer
	age     int                     // index of its list in history.waiting
}

// New returns a learner that knows nothing. longest is the longest life of a ticket: later turns do not count.
func New(longest time.Duration) *Learner {
	return &Learner{waits: waitsTo(longest), kinds: map[tenantKind]*history{}, pending: map[convcache.Key][]*Answer{}}
}

// Answered records an answer under its conversation's key. prompt is the prompt of a text completion without an id, zero for others. The answer
// replaces one that waits under the same key and prompt. of is the account for which it counts.
func (l *Learner) Answered(of, tenant string, kind Kind, key convcache.Key, prompt body.Beginning, at time.Time) *Answer {
	l.mu.Lock()
	defer l.mu.Unlock()
	if before := l.waiting(key, func(a *Answer) bool { return a.prompt == prompt }); before != nil {
		l.settle(before, at)
	}
	if l.oldest.Len >= maxPending {
		l.settle(l.oldest.Most().Oldest().Value, at)
	}
	h := l.history(of, tenantKind{tenant, kind}, at)
	h.pass(at)
	a := &Answer{key: key, prompt: prompt, of: h, at: at}
	a.inOrder, a.inAge = l.oldest.Add(of, 1, a), h.waiting[0].PushBack(a)
	l.pending[key] = append(l.pending[key], a)
	return a
}

// settle counts an answer for the time that it was seen to wait, and forgets it. The caller holds l.mu.
func (l *Learner) settle(a *Answer, at time.Time) {
	if a.of.pass(at); a.inAge != nil {
		l.forget(a)
	}
}

// waiting returns the newest answer under a key for which is returns true, nil if there is none. The caller holds l.mu.
func (l *Learner) waiting(key convcache.Key, is func(*Answer) bool) *Answer {
	under := l.pending[key]
	for _, a := range slices.Backward(under[max(0, len(under)-maxAlike):]) {
		if is(a) {
			return a
		}
	}
	return nil
}

// Turn is what a turn shows of its conversation.
type Turn struct {
	Key      convcache.Key
	Earlier  []convcache.Key           // keys of earlier parts of its history, newest first
	Explicit bool                      // the client named the conversation
	Found    bool                      // the store has a ticket or a note of the conversation
	GoesOn   func(body.Beginning) bool // reports whether a text completion without an id goes on where another prompt ends; nil for others
}

// Asked records a turn. after is the time since the answer that it continues, if known.
func (l *Learner) Asked(turn Turn, at time.Time) (after time.Duration, known bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.continuedBy(turn)
	if a != nil {
		a.of.pass(at)
		if a.inAge == nil { // its time is over
			a = nil
		}
	}
	switch {
	case a != nil:
		after = max(0, at.Sub(a.at))
		a.of.continued(a, at)
		l.forget(a)
		if turn.Found {
			l.seen(&l.own)
		}
	case turn.Found:
		l.seen(&l.others)
	}
	return after, a != nil
}

// continuedBy returns the newest answer that the turn continues, nil for none. The caller holds l.mu.
func (l *Learner) continuedBy(turn Turn) *Answer {
	a := l.waiting(turn.Key, turn.continues)
	for i := 0; a == nil && i < len(turn.Earlier); i++ {
		a = l.waiting(turn.Earlier[i], turn.continues)
	}
	return a
}

// continues reports whether the turn continues an answer with one of its keys.
func (t *Turn) continues(a *Answer) bool {
	if a.prompt.Bytes > 0 {
		return t.GoesOn != nil && t.GoesOn(a.prompt)
	}
	return a.key != t.Key || t.Explicit || a.of.kind.kind.ToolCalls || a.of.kind.kind.Unread
}

// mostSeen bounds the turns that the coverage remembers: beyond it all counts are halved.
const mostSeen = 256

func (l *Learner) seen(count *float64) {
	*count++
	if l.own+l.others > mostSeen {
		l.own, l.others = l.own/2, l.others/2
	}
}

const leastCoverage = 1.0 / 16

// coverage is the share of its answers' continuations that this replica sees. The caller holds l.mu.
func (l *Learner) coverage() float64 {
	return max(leastCoverage, (1+l.own)/(1+l.own+l.others))
}

// Curve returns the curve of a tenant's answers of a kind.
func (l *Learner) Curve(tenant string, kind Kind, at time.Time) Curve {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.kinds[tenantKind{tenant, kind}]
	if h == nil {
		return Curve{}
	}
	l.recent.Use(h.at)
	h.pass(at)
	return h.counts(at).curve(l.waits, l.coverage())
}

// least returns the history to drop: of the account with most, the one from which least was learnt in the last hour. Among equals it is the one used
// longest ago. The caller holds l.mu.
func (l *Learner) least(at time.Time) (least *history) {
	known := uint32(math.MaxUint32)
	for place := range l.recent.Most().All() {
		if n := place.Value.counts(at).known; n < known {
			least, known = place.Value, n
		}
	}
	return least
}

// history returns the history of a tenant and kind. A new one counts for the account of. The caller holds l.mu.
func (l *Learner) history(of string, kind tenantKind, at time.Time) *history {
	if h := l.kinds[kind]; h != nil {
		l.recent.Use(h.at)
		return h
	}
	if len(l.kinds) >= maxKinds {
		last := l.least(at)
		for i := range last.waiting {
			for last.waiting[i].Len() > 0 {
				l.forget(last.waiting[i].Front().Value.(*Answer))
			}
		}
		delete(l.kinds, last.kind)
		l.recent.Remove(last.at)
	}
	h := &history{learner: l, kind: kind, waiting: make([]list.List, len(l.waits)-1)}
	h.at = l.recent.Add(of, 1, h)
	l.kinds[kind] = h
	return h
}

// forget removes a waiting answer. The caller holds l.mu.
func (l *Learner) forget(a *Answer) {
	if under := l.pending[a.key]; len(under) == 1 {
		delete(l.pending, a.key)
	} else {
		at := slices.Index(under, a)
		l.pending[a.key] = slices.Delete(under, at, at+1)
	}
	a.of.waiting[a.age].Remove(a.inAge)
	a.inAge = nil
	l.oldest.Remove(a.inOrder)
}

// waitsTo returns zero and the ends of the spans: 0.1 s, 0.2 s, 0.5 s and so on, up to the longest.
func waitsTo(longest time.Duration) []time.Duration {
	waits, next := []time.Duration{0}, 100*time.Millisecond
	for next < longest && len(waits) < maxSpans {
		waits = append(waits, next)
		if next *= 2; len(waits)%3 == 0 {
			next += next / 4
		}
	}
	return append(waits, longest)
}

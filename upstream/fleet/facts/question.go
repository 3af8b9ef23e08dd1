package facts

import (
	"context"
	"crypto/sha256"
	"errors"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// questions bounds what turns ask of one incarnation. Of each question at most one request is under way. It has a
// context of its own, so that no client's departure ends it, and all turns that need the answer wait for it. A
// question that failed is not asked again for a while, so that an engine which does not answer costs one turn its time
// limit, and not each turn. A refused connection costs nothing, and such a question may be asked again at once. The
// askers keep the answers.
type questions struct {
	limit time.Duration // of one question
	rest  time.Duration // how long a failed question is not asked again
	now   func() time.Time

	mu   sync.Mutex // guards open and what it holds
	open map[[sha256.Size]byte]*question
}

// question is a question that is under way or has failed.
type question struct {
	over  chan struct{} // closed when it is over
	until time.Time     // when it may be asked again; zero while it is under way
}

func newQuestions(limit, rest time.Duration, now func() time.Time) *questions {
	return &questions{limit: limit, rest: rest, now: now, open: map[[sha256.Size]byte]*question{}}
}

// ask runs put, unless the question is under way or rests, and returns a channel that is closed when the question is
// over. Whoever has waited for the channel sees what put has stored. put returns an error if the question failed; a
// panic counts as one.
func (q *questions) ask(ctx context.Context, key [sha256.Size]byte, put func(context.Context) error) <-chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	known := q.open[key]
	if known != nil && (known.until.IsZero() || q.now().Before(known.until)) {
		return known.over
	}
	if len(q.open) >= maxLearnt {
		q.forget()
	}
	asked := &question{over: make(chan struct{})}
	q.open[key] = asked
	go q.run(context.WithoutCancel(ctx), key, asked, put) // ends within the limit
	return asked.over
}

// forget forgets the failed question that may be asked again first. It needs q.mu.
func (q *questions) forget() {
	var first [sha256.Size]byte
	for key, old := range q.open {
		if next := q.open[first]; !old.until.IsZero() && (next == nil || old.until.Before(next.until)) {
			first = key
		}
	}
	delete(q.open, first)
}

func (q *questions) run(ctx context.Context, key [sha256.Size]byte, asked *question, put func(context.Context) error) {
	ctx, cancel := context.WithTimeout(ctx, q.limit)
	defer cancel()
	err := errDefect
	defer func() {
		_ = recover() // a defect in reading an answer must not end the process
		q.mu.Lock()
		defer q.mu.Unlock()
		if asked.until = q.now().Add(q.rest); err == nil || errors.Is(err, syscall.ECONNREFUSED) {
			delete(q.open, key)
		}
		close(asked.over)
	}()
	err = put(ctx)
}

var errDefect = errors.New("panic")

// wait returns when a question is over or ctx ends.
func wait(ctx context.Context, over <-chan struct{}) {
	select {
	case <-over:
	case <-ctx.Done():
	}
}

// digest returns the key of a question with these parts.
func digest(parts ...string) (key [sha256.Size]byte) {
	var room [512]byte // enough for nearly all models and shapes
	text := room[:0]
	for _, part := range parts {
		text = append(strconv.AppendInt(text, int64(len(part)), 10), ':')
		text = append(text, part...)
	}
	return sha256.Sum256(text)
}

// maxLearnt bounds each map of what one incarnation has shown about clients' requests. A deployment sees dozens of
// shapes and models.
const maxLearnt = 1024

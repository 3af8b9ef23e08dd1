package kubernetes

import (
	"errors"
	"math/rand/v2"
	"time"
)

// The waits between requests that fail: 1 s, 2 s, 4 s … 30 s, each shortened at random by up to a half, so that replicas do not
// retry together. A wait that the API server asks for (Retry-After) is kept up to two minutes.
const (
	firstWait     = time.Second
	longestWait   = 30 * time.Second
	longestAskFor = 2 * time.Minute
)

// backoff counts failures in a row, until an event comes.
type backoff struct {
	failures int
	relisted bool // a list has followed a forgotten version without a wait
}

// progress forgets the failures.
func (p *backoff) progress() { *p = backoff{} }

// after returns how long to wait after a request that ended with err. There is no wait if err is nil, or if a version was
// forgotten for the first time, because the list that follows repairs that.
func (p *backoff) after(err error) time.Duration {
	if err == nil {
		return 0
	}
	if forgotten(err) && !p.relisted {
		p.relisted = true
		return 0
	}
	p.failures++
	wait := longestWait
	if shift := p.failures - 1; shift < 5 {
		wait = min(firstWait<<shift, longestWait)
	}
	wait -= rand.N(wait / 2)
	var r *refusal
	if errors.As(err, &r) {
		wait = max(wait, min(r.retryAfter, longestAskFor))
	}
	return wait
}

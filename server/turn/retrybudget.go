package turn

import (
	"maps"
	"sync"
	"time"
)

// RetryBudget keeps retries from doubling the load of a deployment that is
// failing: a fifth of the turns, plus ten per second.
//
// Half of the budget is kept for fair shares. When less than that is left, a retry also needs a share of its own tenant, so that a tenant
// whose requests break engines can't use up the retries of others.
type RetryBudget struct {
	mu     sync.Mutex // guards the rest
	tokens float64
	last   time.Time
	shares map[string]retryShare // of tenants that have less than a full share; the budget bounds how many there are
}

// retryShare is how much of its share a tenant had left at a time.
type retryShare struct {
	tokens float64
	at     time.Time
}

const (
	budgetPerTurn   = 0.2
	budgetPerSecond = 10
	budgetMax       = 2 * budgetShared // so that a tenant alone has as many retries at once as are kept for the others

	// Four tenants at least are needed to spend what is kept for shares, and as many to spend what comes in.
	budgetShared   = 100
	sharePerSecond = budgetPerSecond / 4.0
	shareMax       = budgetShared / 4.0
)

func newRetryBudget() *RetryBudget {
	b := &RetryBudget{shares: map[string]retryShare{}}
	b.Set(budgetMax, time.Now())
	return b
}

// Set lets the budget have so many tokens at a time, from which on others come in.
func (b *RetryBudget) Set(tokens float64, at time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tokens, b.last = tokens, at
}

// earn is called once per turn of a tenant.
func (b *RetryBudget) earn(tenant string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	b.add(now, budgetPerTurn)
	b.keep(tenant, retryShare{b.shares[tenant].left(now) + budgetPerTurn, now})
}

// take reports whether a retry of the tenant may happen now, and takes it from the budget.
func (b *RetryBudget) take(tenant string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	b.add(now, 0)
	own := b.shares[tenant].left(now)
	if b.tokens < 1 || b.tokens <= budgetShared && own < 1 {
		return false
	}
	b.tokens--
	maps.DeleteFunc(b.shares, func(_ string, s retryShare) bool { return s.left(now) >= shareMax })
	b.keep(tenant, retryShare{max(own-1, 0), now})
	return true
}

// add adds to the budget. The caller holds b.mu.
func (b *RetryBudget) add(now time.Time, n float64) {
	b.tokens = min(budgetMax, b.tokens+n+now.Sub(b.last).Seconds()*budgetPerSecond)
	b.last = now
}

// keep needs b.mu.
func (b *RetryBudget) keep(tenant string, share retryShare) {
	if share.tokens >= shareMax {
		delete(b.shares, tenant)
		return
	}
	b.shares[tenant] = share
}

// left returns how much of its share the tenant has now. The zero value has all.
func (s retryShare) left(now time.Time) float64 {
	return min(shareMax, s.tokens+now.Sub(s.at).Seconds()*sharePerSecond)
}

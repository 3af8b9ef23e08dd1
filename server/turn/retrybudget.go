package turn

import (
	"maps"
	"sync"
	"time"
)

// RetryBudget keeps retries from doubling the load of a deployment that is failing. It allows them for a fifth of the turns, plus ten per second.
//
// Half of the budget is kept for fair shares. When less than that is left, a retry also needs a share of its own tenant. So a tenant whose requests
// break engines can't use up the retries of others.
type RetryBudget struct {
	mu     sync.Mutex // guards the rest
	all    retries
	shares map[string]retries // of tenants that have less than a full share; the budget bounds how many there are
}

// retries is how many retries were left at a moment. The zero value has as many as there may be.
type retries struct {
	left float64
	at   time.Time
}

const (
	budgetPerTurn   = 0.2
	budgetPerSecond = 10
	budgetMax       = 2 * budgetShared // so that a tenant alone has as many retries at once as are kept for the others

	// It takes at least four tenants to spend what is kept for shares, or what comes in.
	budgetShared   = 100
	sharePerSecond = budgetPerSecond / 4.0
	shareMax       = budgetShared / 4.0
)

// Earn adds n retries, which a tenant's turn brings. A negative n takes them away, even below zero.
func (b *RetryBudget) Earn(tenant string, n float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.add(tenant, n, time.Now())
}

// take takes a retry of the tenant from the budget, and reports whether there was one.
func (b *RetryBudget) take(tenant string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	all := b.all.now(now, budgetPerSecond, budgetMax)
	if all < 1 || all <= budgetShared && b.shares[tenant].now(now, sharePerSecond, shareMax) < 1 {
		return false
	}
	b.add(tenant, -1, now)
	return true
}

// add changes the budget and the share of a tenant. The caller holds b.mu.
func (b *RetryBudget) add(tenant string, n float64, now time.Time) {
	b.all = retries{min(budgetMax, b.all.now(now, budgetPerSecond, budgetMax)+n), now}
	b.shares[tenant] = retries{max(0, b.shares[tenant].now(now, sharePerSecond, shareMax)+n), now}
	maps.DeleteFunc(b.shares, func(_ string, r retries) bool { return r.now(now, sharePerSecond, shareMax) >= shareMax })
}

// now returns how many are left now, if perSecond come in.
func (r retries) now(now time.Time, perSecond, most float64) float64 {
	return min(most, r.left+now.Sub(r.at).Seconds()*perSecond)
}

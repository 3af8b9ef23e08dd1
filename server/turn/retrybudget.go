package turn

import (
	"sync"
	"time"
)

// RetryBudget keeps retries from doubling the load of a deployment that is failing. It allows them for a fifth of the turns, plus ten per second.
//
// A tenant needs more retries left than it has taken lately. So a tenant whose requests break engines leaves half of what it finds, and can't use up
// the retries of others.
type RetryBudget struct {
	mu    sync.Mutex         // guards the rest
	at    time.Time          // of the numbers
	left  float64            // retries that may be taken
	taken map[string]float64 // by each tenant; the budget bounds how many there are
}

const (
	budgetPerTurn   = 0.2
	budgetPerSecond = 10
	budgetMax       = 200
	// forgetPerSecond is how many of a tenant's retries are forgotten. It takes four tenants to spend what comes in.
	forgetPerSecond = budgetPerSecond / 4.0
)

// Earn adds n retries, which a tenant's turn brings. A negative n takes them away, even below zero.
func (b *RetryBudget) Earn(tenant string, n float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.add(tenant, n)
}

// take takes a retry of the tenant from the budget, and reports whether there was one.
func (b *RetryBudget) take(tenant string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.add(tenant, 0)
	if b.left < 1+b.taken[tenant] {
		return false
	}
	b.add(tenant, -1)
	return true
}

// add brings the numbers up to date, and adds retries of a tenant. The caller holds b.mu.
func (b *RetryBudget) add(tenant string, n float64) {
	now := time.Now()
	passed := now.Sub(b.at).Seconds()
	b.at, b.left = now, min(budgetMax, b.left+passed*budgetPerSecond)+n
	b.taken[tenant] -= n
	for of := range b.taken {
		if b.taken[of] -= passed * forgetPerSecond; b.taken[of] <= 0 {
			delete(b.taken, of)
		}
	}
}

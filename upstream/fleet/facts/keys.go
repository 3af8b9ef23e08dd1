package facts

import (
	"context"
	"net/http"
	"sync"

	"carryover/upstream"
)

// Keys is whether an engine checks the credentials that it is sent.
type Keys struct {
	*asker

	mu      sync.Mutex // held while the engine is asked
	checked Finding
}

// Checked reports whether the engine has refused a credential that nobody has. vLLM without --api-key takes any
// (its AuthenticationMiddleware guards /v1). It asks the engine until that has answered, for 2 s at most, and is false
// while another asks.
func (k *Keys) Checked(ctx context.Context) bool {
	if !k.mu.TryLock() {
		return false
	}
	defer k.mu.Unlock()
	if k.checked == Unknown {
		ctx, cancel := context.WithTimeout(ctx, modelsLimit)
		defer cancel()
		status, _, err := k.shared.Client.Fetch(ctx, k.instance(), "/v1/models", "Bearer "+upstream.NewID(), MaxModelList)
		switch {
		case status == http.StatusUnauthorized, status == http.StatusForbidden:
			k.checked = Yes
		case err == nil && status == http.StatusOK:
			k.checked = No
		}
	}
	return k.checked == Yes
}

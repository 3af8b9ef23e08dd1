package pick

import "errors"

// ErrNoPrefill says that no prefill instance can serve a request that decode may not serve alone.
var ErrNoPrefill = errors.New("no prefill engine is available")

// NoModelError says that no instance serves the model.
type NoModelError struct{ Model string }

// Error implements error.
func (e *NoModelError) Error() string { return "no engine serves the model" }

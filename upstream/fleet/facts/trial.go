package facts

import (
	"context"
	"encoding/json"
	"net/http"

	"carryover/sse/rawjson"
	"carryover/upstream"
)

// Try asks the engine for one token with our own key, and returns the failure if there is one: of a request that no client has made it is
// the engine's. Where the engine refuses the key or the model, which says nothing, it returns otherwise.
func (c *Capability) Try(ctx context.Context, otherwise *upstream.LegError) (failure *upstream.LegError) {
	defer func() {
		if recover() != nil { // a defect in reading an answer must not end the process
			failure = otherwise
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, idsLimit)
	defer cancel()
	fields := map[string]any{"prompt": "Hello", "max_tokens": 1}
	if model := c.firstModel(ctx, ""); model != "" {
		fields["model"] = model
	}
	body, err := json.Marshal(fields)
	if err != nil {
		return otherwise
	}
	failure = &upstream.LegError{Instance: c.instance().Name, Kind: upstream.Broken, Sent: true}
	status, answer, err := c.post(ctx, "/v1/completions", body, "")
	switch failure.Status, failure.Err = status, err; {
	case err != nil:
	case status >= http.StatusInternalServerError && status != http.StatusNotImplemented:
		failure.Kind = upstream.Status
	case status != http.StatusOK:
		return otherwise
	case rawjson.Get(answer, "choices") == nil: // mostly an error
		failure.Kind = upstream.Garbage
	default:
		return nil
	}
	return failure
}

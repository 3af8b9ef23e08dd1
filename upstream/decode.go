package upstream

import (
	"context"
	"net/http"
)

// Decode runs a decode leg up to its response headers. The caller reads and
// closes the body; only answers with status 200 and no content coding are
// returned. Errors are *LegError.
func (c *Client) Decode(ctx context.Context, leg Leg) (*http.Response, error) {
	return c.send(ctx, leg)
}

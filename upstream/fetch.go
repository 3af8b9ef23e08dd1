package upstream

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
)

// Fetch gets a path of an instance, for health, models and metrics, and reads the
// answer whole. status is 0 if no answer has begun. An answer of more than most bytes
// is ErrAnswerTooLarge; a connection that was refused is syscall.ECONNREFUSED. An
// authorization that is not empty replaces the client's configured key.
func (c *Client) Fetch(ctx context.Context, instance *Instance, path, authorization string, most int64) (status int, body []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, instance.BaseURL+path, nil)
	if err != nil {
		return 0, nil, fmt.Errorf("get %s: %w", path, err)
	}
	return c.ask(req, authorization, most)
}

// FetchOpen gets what a server beside an engine tells everyone, at a URL. No key goes there: such servers ask for none, and
// speak no TLS. Otherwise it is Fetch.
func (c *Client) FetchOpen(ctx context.Context, url string, most int64) (status int, body []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, nil, fmt.Errorf("get: %w", err)
	}
	open := Client{http: c.http}
	return open.ask(req, "", most)
}

// Post sends a small JSON body to a path of an instance and reads the answer whole.
// status is 0 if no answer has begun. Answers are bounded as those of prefill legs
// are; errors and authorization are those of Fetch.
func (c *Client) Post(ctx context.Context, instance *Instance, path string, body []byte, authorization string) (status int, answer []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, instance.BaseURL+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, fmt.Errorf("post %s: %w", path, err)
	}
	req.GetBody = nil
	req.Header.Set("Content-Type", "application/json")
	instance.rank(req)
	if status, answer, err = c.ask(req, authorization, maxPrefillAnswer); err != nil {
		return status, nil, fmt.Errorf("post %s: %w", path, err)
	}
	return status, answer, nil
}

// ask sends a request that is no leg, and reads its answer whole.
func (c *Client) ask(req *http.Request, authorization string, most int64) (status int, body []byte, err error) {
	c.headers(req, authorization)
	resp, err := c.http.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	body, err = ReadAll(resp.Body, most)
	return resp.StatusCode, body, err
}

// ReadAll reads r to its end; more than limit bytes are ErrAnswerTooLarge.
func ReadAll(r io.Reader, limit int64) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(body)) > limit {
		return nil, ErrAnswerTooLarge
	}
	return body, nil
}

package vllmsim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"

	"carryover/upstream/vllmsim/config"
)

// Lone returns the answer of a new instance with cfg to this request alone, so that no transfer and no cache can have affected it. An answer
// through a proxy must say the same.
func Lone(ctx context.Context, cfg config.Config, path string, body []byte) (answer []byte, err error) {
	i, err := Start(cfg)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, i.Close()) }()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, i.URL()+path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("make lone request: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	transport := &http.Transport{DisableKeepAlives: true}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return nil, fmt.Errorf("lone request: %w", err)
	}
	defer func() { _ = resp.Body.Close() }() // the body is read completely below
	answer, err = io.ReadAll(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("read lone answer: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("lone request answered %d: %s", resp.StatusCode, answer)
	}
	return answer, nil
}

package engines

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
)

// Pair has the addresses of engines in another process (Serve).
type Pair struct {
	Prefill string `json:"prefill"`
	Decode  string `json:"decode"`
	Control string `json:"control"`
}

// Set sets the pace of the engines and makes them forget everything, for the next contender.
func (e *Pair) Set(ctx context.Context, p Pace) error {
	body, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("engines: %w", err)
	}
	return e.ask(ctx, http.MethodPost, "/pace", body, nil)
}

// Reset sets the counts of the engines to zero. What is under way stays known.
func (e *Pair) Reset(ctx context.Context) error {
	return e.ask(ctx, http.MethodPost, "/reset", nil, nil)
}

// Faults returns what the engines have counted since the reset. The caller asks when the load has ended. What is under way gets some seconds
// to arrive; the rest are leaks.
func (e *Pair) Faults(ctx context.Context) (Faults, Counts, error) {
	var s seen
	err := e.ask(ctx, http.MethodGet, "/faults", nil, &s)
	return s.Faults, s.Counts, err
}

func (e *Pair) ask(ctx context.Context, method, path string, body []byte, into any) error {
	req, err := http.NewRequestWithContext(ctx, method, e.Control+path, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("engines: %w", err)
	}
	req.Close = true
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("engines: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("engines: %s %s: status %d", method, path, resp.StatusCode)
	}
	if into == nil {
		return nil
	}
	if err := json.NewDecoder(resp.Body).Decode(into); err != nil {
		return fmt.Errorf("engines: %w", err)
	}
	return nil
}

// NoTicket is the kv_transfer_params of a prefill leg without a ticket, as in vLLM's example.
const NoTicket = `{"do_remote_decode":true,"do_remote_prefill":false,"remote_engine_id":null,"remote_block_ids":null,"remote_host":null,"remote_port":null}`

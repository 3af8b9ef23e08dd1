package fleet

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"carryover/cmd/pdbench/process"
)

// The speed of engines: without slowdown an engine computes 2,000 prompt tokens a second.
const (
	PrefillPerToken  = 500 * time.Microsecond
	TransferPerBlock = 200 * time.Microsecond
	InterToken       = 25 * time.Millisecond
)

func engineFlags(role string, scale float64) []string {
	return []string{"sim", "--role", role, "--time-scale", fmt.Sprint(scale), "--prefill-per-token", PrefillPerToken.String(),
		"--port", "0", "--transfer-per-block", TransferPerBlock.String(), "--inter-token", InterToken.String()}
}

// Engine is one simulated engine.
type Engine struct {
	Name string
	URL  string

	flags   []string // of its start, at any port
	process *process.Process
	http    *http.Client
}

// Stats are the counts of an engine that reports use.
type Stats struct {
	PinnedTokens int `json:"pinned_tokens"`
	Preemptions  int `json:"preemptions"`

	PromptTokens   int `json:"prompt_tokens"`
	ComputedTokens int `json:"computed_tokens"`

	HandBacks              int `json:"hand_backs"`
	HandBackTokens         int `json:"hand_back_tokens"`
	HandBackComputedTokens int `json:"hand_back_computed_tokens"`
	LeasedHandBacks        int `json:"leased_hand_backs"`
	UnevenHandBacks        int `json:"uneven_hand_backs"`

	CorruptReads int `json:"corrupt_reads"`
	Poisoned     int `json:"poisoned"`
	DoubleReads  int `json:"double_reads"`
	ExpiredReads int `json:"expired_reads"`
	UnknownReads int `json:"unknown_reads"`
	OtherSalts   int `json:"other_salts"`
}

// Stats asks the engine for its counts.
func (e *Engine) Stats(ctx context.Context) (s Stats, err error) {
	return s, e.control(ctx, http.MethodGet, "/_sim/stats", nil, &s)
}

// Advance moves the engine's clock forward, so that leases and TTLs end without a wait.
func (e *Engine) Advance(ctx context.Context, d time.Duration) error {
	body, err := json.Marshal(map[string]float64{"seconds": d.Seconds()})
	if err != nil {
		return err
	}
	return e.control(ctx, http.MethodPost, "/_sim/advance", body, &struct{}{})
}

func (e *Engine) control(ctx context.Context, method, path string, body []byte, into any) error {
	req, err := http.NewRequestWithContext(ctx, method, e.URL+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := e.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s %s: %s", e.Name, method, path, resp.Status)
	}
	return json.NewDecoder(resp.Body).Decode(into)
}

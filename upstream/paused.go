package upstream

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
)

// pausedWords is how vLLM 0.33 begins its refusals while it is paused (v1/engine/core.py).
const pausedWords = "Generation is paused"

// Paused reports whether the engine itself refused the request because it is paused (POST /pause), before it scheduled
// anything: by a 503, or by the first event of a stream. Measured on a real pair of 0.33: decode makes prefill free
// the blocks of a hand-over, so the hand-over is spent; decode's blocks of a ticket stay pinned, and nobody reads
// them. A 503 with other words may come from something in front of the engine, and says nothing about pausing.
func (e *LegError) Paused() bool {
	return e.Kind == Status && strings.HasPrefix(e.Message, pausedWords)
}

// PausedError is the error of a leg that is not sent, because the instance is known to be paused.
func PausedError(at *Instance) *LegError {
	return &LegError{Role: at.Role, Instance: at.Name, Kind: Status, Status: http.StatusServiceUnavailable, Fault: Fault{Message: pausedWords}}
}

// IsPaused asks an instance whether it is paused, by GET /is_paused: vLLM has that wherever it has /pause
// (VLLM_SERVER_DEV_MODE). told is false if it does not say.
func (c *Client) IsPaused(ctx context.Context, at *Instance) (paused, told bool) {
	var answer struct {
		IsPaused *bool `json:"is_paused"`
	}
	status, text, err := c.Fetch(ctx, at, "/is_paused", "", 4<<10)
	if err != nil || status != http.StatusOK || json.Unmarshal(text, &answer) != nil || answer.IsPaused == nil {
		return false, false
	}
	return *answer.IsPaused, true
}

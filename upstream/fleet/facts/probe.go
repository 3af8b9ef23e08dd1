package facts

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"carryover/sse/rawjson"
	"carryover/upstream"
	"carryover/upstream/body"
)

// Engines that use forwarded ids refuse the probe at once; others run it as a request of one token. A probe without an
// answer is not repeated for a while.
const (
	idsLimit    = 5 * time.Second
	idsRetry    = 30 * time.Second
	modelsLimit = 2 * time.Second // the part of it for the list of models
)

// What vLLM blames when a forwarded id is negative: the member (_reused_prompt_token_ids, renderers/online_renderer.py, 0.30), and in 0.28,
// where the engine alone looks at it, the id (v1/engine/input_processor.py). The text of the probe has no such id.
const (
	idsMember  = "kv_transfer_params.prompt_token_ids"
	idsMessage = "Token id -1 is out of vocabulary"
)

// Capability is whether an incarnation uses the token ids that it is sent.
type Capability struct {
	*asker
	probes *questions

	mu      sync.Mutex // guards the rest
	usesIDs [body.APIs]Finding
	refused [body.APIs]bool // the last probe with our own key was refused
	under   <-chan struct{} // closed when the probe that Begin has started is over, nil for none
}

// UsesIDs says whether the endpoint of an API computes kv_transfer_params.prompt_token_ids instead of rendering the
// prompt. It sends nothing.
func (c *Capability) UsesIDs(api body.API) Finding {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.usesIDs[api]
}

// Probe finds out what UsesIDs returns, with a request of which one id is negative: an engine that reads it answers
// 400 and names it; one that ignores them answers 200, and then holds one block for its lease.
//
// An incarnation is probed until there is a finding. The probe uses our own key and the model that the engine lists
// first, so that no client's request can make it fail for others. All callers wait for the same probe, until ctx ends
// at the latest. A probe takes 5 s at most. After a failure of the engine (time-out, broken connection, an answer that
// makes no sense) the next one is sent after 30 c. A refusal (401, 403, 404, 429) proves nothing, and the next probe
// may follow at once; if our own key was refused, authorization is tried, where "" is none. For an incarnation that is
// not known there is no finding.
func (c *Capability) Probe(ctx context.Context, api body.API, authorization string) Finding {
	if found := c.UsesIDs(api); found != Unknown || !c.known {
		return found
	}
	wait(ctx, c.ask(ctx, api, ""))
	c.mu.Lock()
	found, refused := c.usesIDs[api], c.refused[api]
	c.mu.Unlock()
	if found != Unknown || !refused || authorization == "" {
		return found
	}
	wait(ctx, c.ask(ctx, api, authorization))
	return c.UsesIDs(api)
}

// Begin starts the probe of an incarnation without findings, and does not wait for it. If our own key is refused,
// the probe is left to the turns.
func (c *Capability) Begin(ctx context.Context) {
	c.mu.Lock()
	asked := c.usesIDs[body.Chat] != Unknown || c.refused[body.Chat]
	c.mu.Unlock()
	if !asked {
		under := c.ask(ctx, body.Chat, "")
		c.mu.Lock()
		c.under = under
		c.mu.Unlock()
	}
}

// begun waits for the probe that Begin has started, at most until ctx ends, and returns what is known then.
func (c *Capability) begun(ctx context.Context) Finding {
	c.mu.Lock()
	under := c.under
	c.mu.Unlock()
	if under != nil {
		wait(ctx, under)
	}
	return c.UsesIDs(body.Chat)
}

// ask runs the probe with one credential. A failure with a client's credential is remembered for that client only.
func (c *Capability) ask(ctx context.Context, api body.API, authorization string) (over <-chan struct{}) {
	return c.probes.ask(ctx, digest(api.Path(), authorization), func(ctx context.Context) error {
		if c.UsesIDs(api) != Unknown {
			return nil // another probe has found it since the caller looked
		}
		found, refused, err := c.askIDs(ctx, api, authorization)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.usesIDs[api] = max(c.usesIDs[api], found) // No wins over Yes if two probes disagree
		if authorization == "" {
			c.refused[api] = refused
		}
		return err
	})
}

// askIDs sends the probe. refused says that the engine refused the credential or the model, which shows nothing; err
// is for no answer, or one that makes no sense. An engine without the endpoint of the API uses no ids.
func (c *Capability) askIDs(ctx context.Context, api body.API, authorization string) (found Finding, refused bool, err error) {
	fields := probeFields(api)
	if model := c.firstModel(ctx, authorization); model != "" {
		fields["model"] = model
	}
	body, err := json.Marshal(fields)
	if err != nil {
		return Unknown, false, fmt.Errorf("probe: %w", err)
	}
	status, answer, err := c.post(ctx, api.Path(), body, authorization)
	if err != nil {
		return Unknown, false, fmt.Errorf("probe: %w", err)
	}
	switch {
	case status == http.StatusOK, api.Rendered() && unserved(status, answer):
		return No, false, nil
	case status == http.StatusBadRequest && namesIDs(api, upstream.ReadFault(answer)):
		return Yes, false, nil
	}
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusTooManyRequests:
		return Unknown, true, nil
	}
	return Unknown, false, fmt.Errorf("probe: status %d", status)
}

// probeFields returns a request of one token with an id that no vocabulary has.
func probeFields(api body.API) map[string]any {
	fields := map[string]any{
		"kv_transfer_params": json.RawMessage(`{"do_remote_decode":true,"do_remote_prefill":false,"prompt_token_ids":[1,-1]}`),
	}
	if api == body.Responses {
		fields["input"], fields["max_output_tokens"], fields["store"] = "x", 1, false
		return fields
	}
	fields["messages"], fields["max_tokens"] = []map[string]string{{"role": "user", "content": "x"}}, 1
	return fields
}

// namesIDs reports whether a refusal blames the ids. Errors of the Messages API have no param; vLLM appends it to
// their text (testdata/exchanges/vllm-0.32-agents 13).
func namesIDs(api body.API, fault upstream.Fault) bool {
	return fault.Param == idsMember || strings.HasPrefix(fault.Message, idsMessage) || api == body.Messages && fault.Param == "" && strings.Contains(fault.Message, idsMember)
}

// firstModel returns the model that the engine lists first, "" if it lists none; an engine accepts a request without a
// model.
func (c *Capability) firstModel(ctx context.Context, authorization string) string {
	ctx, cancel := context.WithTimeout(ctx, modelsLimit)
	defer cancel()
	status, list, err := c.shared.Client.Fetch(ctx, c.instance(), "/v1/models", authorization, MaxModelList)
	if err != nil || status != http.StatusOK || !rawjson.Valid(list) {
		return ""
	}
	first, _ := rawjson.First(rawjson.Get(list, "data"))
	return rawjson.GetText(first, "id")
}

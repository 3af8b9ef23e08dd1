package upstream

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/tidwall/gjson"

	"carryover/sse/rawjson"
)

// Finding is what has been found out about something.
type Finding int

// The findings.
const (
	Unknown Finding = iota
	Yes
	No
)

// The probe of a capability is refused at once by engines that have it; others
// run it as a request of one token. One that the engine failed to answer is not
// repeated for a while.
const (
	capabilityLimit = 5 * time.Second
	capabilityRetry = 30 * time.Second
	modelsLimit     = 2 * time.Second // of that, for the list of models
)

// maxModelList bounds what is read of a list of models: vLLM takes some hundred
// bytes for each, adapters included.
const maxModelList = 1 << 20

// idsMember is how vLLM names the member at fault when forwarded ids are
// malformed (_reused_prompt_token_ids, renderers/online_renderer.py).
const idsMember = "kv_transfer_params.prompt_token_ids"

// Capability remembers what each start of an instance can do: whether its chat
// endpoint uses forwarded ids instead of rendering, and whether its params carry
// output ids. It is safe for concurrent use.
type Capability struct {
	client *Client
	probes *questions

	mu    sync.Mutex // guards known
	known map[start]*ability
}

// start is one start of an engine.
type start struct{ instance, incarnation string }

type ability struct {
	ids     Finding
	refused bool // the last probe with our own key was not let in
	plugIn  Finding
}

// NewCapability returns an empty memory that probes through client.
func NewCapability(client *Client) *Capability {
	return &Capability{client: client, probes: newQuestions(capabilityLimit, capabilityRetry), known: map[start]*ability{}}
}

// Known returns whether the chat endpoint uses kv_transfer_params.prompt_token_ids.
func (c *Capability) Known(instance *Instance, incarnation string) Finding {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.read(instance, incarnation).ids
}

// Probe finds that out with ids that are none: an engine that reads them answers
// 400 and names them, one that ignores them answers 200, and then holds one block
// for its lease. A start is probed until something is found, with our own key and
// the model that it lists first, so that no client's request can make the probe
// fail for others; callers that come meanwhile wait for the same probe, at the
// longest until ctx ends. A probe takes 5 s at most. One that failed by the engine's
// fault (time-out, broken connection, any answer that makes no sense) is repeated
// after 30 s. One that was not let in (401, 403, 404, 429) proves nothing and is
// repeated at once; where that befell our own key, authorization is tried, "" being
// none.
func (c *Capability) Probe(ctx context.Context, instance *Instance, incarnation, authorization string) Finding {
	if known := c.Known(instance, incarnation); known != Unknown {
		return known
	}
	wait(ctx, c.probe(ctx, instance, incarnation, ""))
	c.mu.Lock()
	found := c.read(instance, incarnation)
	c.mu.Unlock()
	if found.ids != Unknown || !found.refused || authorization == "" {
		return found.ids
	}
	wait(ctx, c.probe(ctx, instance, incarnation, authorization))
	return c.Known(instance, incarnation)
}

// Begin starts the probe of a start of which nothing is known, and does not wait
// for it. One that does not let us in with our own key is left to the turns.
func (c *Capability) Begin(ctx context.Context, instance *Instance, incarnation string) {
	c.mu.Lock()
	found := c.read(instance, incarnation)
	c.mu.Unlock()
	if found.ids == Unknown && !found.refused {
		c.probe(ctx, instance, incarnation, "")
	}
}

// probe runs the probe with one credential. Failures of a client's own are
// remembered for that client only.
func (c *Capability) probe(ctx context.Context, instance *Instance, incarnation, authorization string) (over <-chan struct{}) {
	return c.probes.ask(ctx, digest(instance.BaseURL, incarnation, authorization), func(ctx context.Context) error {
		if c.Known(instance, incarnation) != Unknown {
			return nil // since the caller looked
		}
		finding, refused, err := c.ask(ctx, instance, authorization)
		c.mu.Lock()
		defer c.mu.Unlock()
		a := c.write(instance, incarnation)
		a.ids = max(a.ids, finding) // No, of two that disagree
		if authorization == "" {
			a.refused = refused
		}
		return err
	})
}

// ask sends the probe. refused says that the engine refused the credential or the model,
// and has answered nothing; the error, that it gave no answer that makes sense.
func (c *Capability) ask(ctx context.Context, instance *Instance, authorization string) (finding Finding, refused bool, err error) {
	fields := map[string]any{
		"messages":           []map[string]string{{"role": "user", "content": "x"}},
		"max_tokens":         1,
		"kv_transfer_params": json.RawMessage(`{"do_remote_decode":true,"do_remote_prefill":false,"prompt_token_ids":[1,"x"]}`),
	}
	if model := c.firstModel(ctx, instance, authorization); model != "" {
		fields["model"] = model
	}
	body, err := json.Marshal(fields)
	if err != nil {
		return Unknown, false, fmt.Errorf("probe: %w", err)
	}
	status, answer, err := c.client.Post(ctx, instance, Chat.Path(), body, authorization)
	if err != nil {
		return Unknown, false, fmt.Errorf("probe: %w", err)
	}
	switch status {
	case http.StatusOK:
		return No, false, nil
	case http.StatusBadRequest:
		if fault := ReadFault(answer); fault.Param == idsMember {
			return Yes, false, nil
		}
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusTooManyRequests:
		return Unknown, true, nil
	}
	return Unknown, false, fmt.Errorf("probe: status %d", status)
}

// firstModel returns the model that an instance lists first, "" if it lists none. An
// engine takes a request that names none as one for it.
func (c *Capability) firstModel(ctx context.Context, instance *Instance, authorization string) string {
	ctx, cancel := context.WithTimeout(ctx, modelsLimit)
	defer cancel()
	status, list, err := c.client.Fetch(ctx, instance, "/v1/models", authorization, maxModelList)
	if err != nil || status != http.StatusOK || !rawjson.Valid(list) {
		return ""
	}
	if id := gjson.GetBytes(list, "data.0.id"); id.Type == gjson.String {
		return id.String()
	}
	return ""
}

// PlugIn returns whether params carry output_token_ids.
func (c *Capability) PlugIn(instance *Instance, incarnation string) Finding {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.read(instance, incarnation).plugIn
}

// LearnPlugIn records an answer that could have left a ticket, and whether its
// params had output ids. The first without them is the end of it: a plug-in that
// speaks sometimes is none, because without its ids a turn leaves no ticket.
func (c *Capability) LearnPlugIn(instance *Instance, incarnation string, present bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := c.write(instance, incarnation)
	switch {
	case !present:
		a.plugIn = No
	case a.plugIn == Unknown:
		a.plugIn = Yes
	}
}

// read returns what is known of a start.
func (c *Capability) read(instance *Instance, incarnation string) ability {
	if a := c.known[start{instance.BaseURL, incarnation}]; a != nil {
		return *a
	}
	return ability{}
}

// write returns the record of a start, made if there is none. When there are too
// many, all go, which takes nothing but a new probe each.
func (c *Capability) write(instance *Instance, incarnation string) *ability {
	key := start{instance.BaseURL, incarnation}
	a := c.known[key]
	if a == nil {
		if len(c.known) >= maxRemembered {
			clear(c.known)
		}
		a = &ability{}
		c.known[key] = a
	}
	return a
}

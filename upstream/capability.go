package upstream

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"sync"
	"time"
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
// run it as a request of one token. One that gave no finding is not repeated for
// a while.
const (
	capabilityLimit = 5 * time.Second
	capabilityRetry = 30 * time.Second
)

// idsMember is how vLLM names the member at fault when forwarded ids are
// malformed (_reused_prompt_token_ids, renderers/online_renderer.py).
const idsMember = "kv_transfer_params.prompt_token_ids"

// Capability remembers what each start of an instance can do: whether its chat
// endpoint uses forwarded ids instead of rendering, and whether its params carry
// output ids. It is safe for concurrent use.
type Capability struct {
	client *Client
	now    func() time.Time

	mu    sync.Mutex // guards known
	known map[start]*ability
}

// start is one start of an engine.
type start struct{ instance, incarnation string }

type ability struct {
	ids    Finding
	asked  time.Time // the last probe
	plugIn Finding
}

// NewCapability returns an empty memory that probes through client.
func NewCapability(client *Client) *Capability {
	return &Capability{client: client, now: time.Now, known: map[start]*ability{}}
}

// Known returns whether the chat endpoint uses kv_transfer_params.prompt_token_ids.
func (c *Capability) Known(instance *Instance, incarnation string) Finding {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.read(instance, incarnation).ids
}

// Probe finds that out with ids that are none: an engine that reads them answers
// 400 and names them, one that ignores them answers 200, and then holds one block
// for its lease. Other answers prove nothing. A start is probed until something
// is found, by one caller at a time, at most every 30 s; who comes meanwhile gets
// what is known. It takes 5 s at most.
func (c *Capability) Probe(ctx context.Context, instance *Instance, incarnation, model, authorization string) Finding {
	c.mu.Lock()
	a := c.write(instance, incarnation)
	if known := a.ids; known != Unknown || !a.asked.IsZero() && c.now().Sub(a.asked) < capabilityRetry {
		c.mu.Unlock()
		return known
	}
	a.asked = c.now()
	c.mu.Unlock()
	finding, err := c.ask(ctx, instance, model, authorization)
	if err != nil {
		return Unknown
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.write(instance, incarnation).ids = finding
	return finding
}

func (c *Capability) ask(ctx context.Context, instance *Instance, model, authorization string) (Finding, error) {
	fields := map[string]any{
		"messages":           []map[string]string{{"role": "user", "content": "x"}},
		"max_tokens":         1,
		"kv_transfer_params": json.RawMessage(`{"do_remote_decode":true,"do_remote_prefill":false,"prompt_token_ids":[1,"x"]}`),
	}
	if model != "" {
		fields["model"] = model
	}
	body, err := json.Marshal(fields)
	if err != nil {
		return Unknown, fmt.Errorf("probe: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, capabilityLimit)
	defer cancel()
	status, answer, err := c.client.exchange(ctx, instance, Chat.Path(), body, authorization)
	if err != nil {
		return Unknown, fmt.Errorf("probe: %w", err)
	}
	var fault LegError
	fault.describe(answer)
	switch {
	case status == http.StatusBadRequest && fault.Param == idsMember:
		return Yes, nil
	case status == http.StatusOK:
		return No, nil
	}
	return Unknown, nil
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

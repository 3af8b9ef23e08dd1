package facts

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"time"

	"carryover/sse/rawjson"
	"carryover/upstream"
	"carryover/upstream/body"
)

// Engines that use forwarded ids refuse the probe immediately; others run it as a request of one token. A probe without
// an answer rests for idsRetry.
const (
	idsLimit    = 5 * time.Second
	idsRetry    = 30 * time.Second
	modelsLimit = 2 * time.Second // the part of idsLimit for the list of models
)

// What vLLM blames when a forwarded id is negative: the member (_reused_prompt_token_ids, renderers/online_renderer.py, 0.30), or in 0.28,
// where only the engine looks at it, the id (v1/engine/input_processor.py). The probe's text has no such id.
const (
	idsMember  = "kv_transfer_params.prompt_token_ids"
	idsMessage = "Token id -1 is out of vocabulary"
)

// Requests of one token with an id that no vocabulary has, without their model.
const (
	chatProbe      = "{" + probeParams + `,"max_tokens":1,"messages":[{"content":"x","role":"user"}]`
	responsesProbe = `{"input":"x",` + probeParams + `,"max_output_tokens":1,"store":false`
	probeParams    = `"kv_transfer_params":{"do_remote_decode":true,"do_remote_prefill":false,"prompt_token_ids":[1,-1]}`
)

// Capability learns whether an incarnation uses the token ids that it gets.
type Capability struct {
	*asker
	limit time.Duration

	mu      sync.Mutex // guards the rest
	usesIDs [body.APIs]Finding
	refused [body.APIs]bool // the last probe with our own key was refused
	open    map[[sha256.Size]byte]*question
}

// question is a probe with one credential that is under way (at most one) or has failed. Its own context outlives the client, and all turns
// that need the answer wait for it. A failed one rests, so that a silent engine costs one turn its time limit, and not each. After a refused
// connection, which costs nothing, the next probe may follow immediately.
type question struct {
	over  chan struct{}
	until time.Time // when it may be asked again; zero while it is under way
}

// UsesIDs says whether an API's endpoint computes kv_transfer_params.prompt_token_ids instead of rendering the prompt.
// It sends nothing.
func (c *Capability) UsesIDs(api body.API) Finding {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.usesIDs[api]
}

// Probe finds out what UsesIDs returns by a request with a negative id. An engine that reads the ids answers 400 and
// names it; one that ignores them answers 200, and then holds one block for its lease.
//
// An incarnation is probed until there is a finding. The probe uses our own key and the first model in the engine's
// list, so that no client's request can make it fail for others. All callers wait for one probe, until ctx ends at the
// latest. It takes 5 s at most. After a failure of the engine (time-out, broken connection, meaningless answer) the
// next probe waits 30 s. A refusal (401, 403, 404, 429) proves nothing, and the next probe may follow immediately. If
// our own key was refused, authorization is tried, unless it is "". An unknown incarnation gets no finding.
func (c *Capability) Probe(ctx context.Context, api body.API, authorization string) Finding {
	if found := c.UsesIDs(api); found != Unknown || !c.known {
		return found
	}
	Wait(ctx, c.ask(ctx, api, ""))
	if authorization != "" && c.UsesIDs(api) == Unknown && c.settled(api) { // our own key was refused
		Wait(ctx, c.ask(ctx, api, authorization))
	}
	return c.UsesIDs(api)
}

// Begin starts the probe of an incarnation without a finding, and does not wait. If our own key is refused, turns
// probe.
func (c *Capability) Begin(ctx context.Context) {
	if !c.settled(body.Chat) {
		c.ask(ctx, body.Chat, "")
	}
}

func (c *Capability) settled(api body.API) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.usesIDs[api] != Unknown || c.refused[api]
}

// ask runs the probe with one credential, unless it is under way or rests, and returns a channel that is closed at its end. A failure with a
// client's credential counts for that client only.
func (c *Capability) ask(ctx context.Context, api body.API, authorization string) (over <-chan struct{}) {
	key := digest(api.Path(), authorization)
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := c.open[key]; known != nil && (known.until.IsZero() || c.shared.Now().Before(known.until)) {
		return known.over
	}
	if len(c.open) >= maxLearnt {
		c.forget()
	}
	asked := &question{over: make(chan struct{})}
	c.open[key] = asked
	go func() { // ends within the limit
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.limit)
		defer cancel()
		found, refused, err := Unknown, false, errDefect
		defer func() {
			_ = recover() // a defect in reading an answer must not end the process
			c.mu.Lock()
			defer c.mu.Unlock()
			c.usesIDs[api] = max(c.usesIDs[api], found) // No wins over Yes if two probes disagree
			if authorization == "" {
				c.refused[api] = refused
			}
			if asked.until = c.shared.Now().Add(idsRetry); err == nil || errors.Is(err, syscall.ECONNREFUSED) {
				delete(c.open, key)
			}
			close(asked.over)
		}()
		if found = c.UsesIDs(api); found != Unknown { // another probe was faster
			err = nil
			return
		}
		found, refused, err = c.askIDs(ctx, api, authorization)
	}()
	return asked.over
}

// forget needs c.mu.
func (c *Capability) forget() {
	var first [sha256.Size]byte
	for key, old := range c.open {
		if next := c.open[first]; !old.until.IsZero() && (next == nil || old.until.Before(next.until)) {
			first = key
		}
	}
	delete(c.open, first)
}

var errDefect = errors.New("panic")

// askIDs sends the probe. refused means that the engine refused the credential or the model, which shows nothing; err
// means no answer or a meaningless one. An engine without the API's endpoint uses no ids.
func (c *Capability) askIDs(ctx context.Context, api body.API, authorization string) (found Finding, refused bool, err error) {
	prompt := chatProbe
	if api == body.Responses {
		prompt = responsesProbe
	}
	status, answer, err := c.post(ctx, api.Path(), []byte(prompt+c.firstModel(ctx, authorization)+"}"), authorization)
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

// namesIDs reports whether a refusal blames the ids. Errors of the Messages API have no param; vLLM appends it to their
// text (testdata/exchanges/vllm-0.32-agents 13).
func namesIDs(api body.API, fault upstream.Fault) bool {
	return fault.Param == idsMember || strings.HasPrefix(fault.Message, idsMessage) || api == body.Messages && fault.Param == "" && strings.Contains(fault.Message, idsMember)
}

// firstModel returns a comma and the member with the first model of the engine's list, "" if there is none: engines accept a request without
// a model.
func (c *Capability) firstModel(ctx context.Context, authorization string) string {
	ctx, cancel := context.WithTimeout(ctx, modelsLimit)
	defer cancel()
	status, list, err := c.shared.Client.Fetch(ctx, c.instance(), "/v1/models", authorization, MaxModelList)
	if err != nil || status != http.StatusOK || !rawjson.Valid(list) {
		return ""
	}
	first, _ := rawjson.First(rawjson.Get(list, "data"))
	if rawjson.GetText(first, "id") == "" {
		return ""
	}
	return `,"model":` + string(rawjson.Get(first, "id"))
}

// Try asks the engine for one token with our own key. A failure is the engine's, because no client made the request. If the engine
// refuses the key or the model, which shows nothing, Try returns otherwise.
func (c *Capability) Try(ctx context.Context, otherwise *upstream.LegError) (failure *upstream.LegError) {
	defer func() {
		if recover() != nil { // a defect in reading an answer must not end the process
			failure = otherwise
		}
	}()
	ctx, cancel := context.WithTimeout(ctx, idsLimit)
	defer cancel()
	failure = &upstream.LegError{Instance: c.instance().Name, Kind: upstream.Broken, Sent: true}
	status, answer, err := c.post(ctx, "/v1/completions", []byte(`{"max_tokens":1,"prompt":"Hello"`+c.firstModel(ctx, "")+"}"), "")
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

// Keys learns whether an engine checks credentials.
type Keys struct {
	*asker

	mu      sync.Mutex // held while the engine is asked
	checked Finding
}

// Checked reports whether the engine has refused a credential that nobody has. vLLM without --api-key accepts any (its
// AuthenticationMiddleware guards /v1). It asks until the engine has answered, for 2 s at most, and is false while
// another caller asks.
func (k *Keys) Checked(ctx context.Context) bool {
	if !k.mu.TryLock() {
		return false
	}
	defer k.mu.Unlock()
	if k.checked == Unknown {
		ctx, cancel := context.WithTimeout(ctx, modelsLimit)
		defer cancel()
		status, _, err := k.shared.Client.Fetch(ctx, k.instance(), "/v1/models", "Bearer "+upstream.NewID(), MaxModelList)
		switch {
		case status == http.StatusUnauthorized, status == http.StatusForbidden:
			k.checked = Yes
		case err == nil && status == http.StatusOK:
			k.checked = No
		}
	}
	return k.checked == Yes
}

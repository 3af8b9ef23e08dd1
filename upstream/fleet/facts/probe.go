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

// The requests of one token with an id that no vocabulary has, besides their model.
const (
	chatProbe      = "{" + probeParams + `,"max_tokens":1,"messages":[{"content":"x","role":"user"}]`
	responsesProbe = `{"input":"x",` + probeParams + `,"max_output_tokens":1,"store":false`
	probeParams    = `"kv_transfer_params":{"do_remote_decode":true,"do_remote_prefill":false,"prompt_token_ids":[1,-1]}`
)

// Capability is whether an incarnation uses the token ids that it is sent.
type Capability struct {
	*asker
	limit time.Duration // of one probe

	mu      sync.Mutex // guards the rest
	usesIDs [body.APIs]Finding
	refused [body.APIs]bool // the last probe with our own key was refused
	open    map[[sha256.Size]byte]*question
}

// question is a probe with one credential that is under way or has failed. At most one is under way. It has a context of its own, so that no
// client's departure ends it, and all turns that need the answer wait for it. One that failed is not sent again for a while, so that an engine
// which does not answer costs one turn its time limit, and not each turn. A refused connection costs nothing, and such a probe may follow at
// once.
type question struct {
	over  chan struct{} // closed when it is over
	until time.Time     // when it may be asked again; zero while it is under way
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
	Wait(ctx, c.ask(ctx, api, ""))
	if authorization != "" && c.UsesIDs(api) == Unknown && c.settled(api) { // our own key was refused
		Wait(ctx, c.ask(ctx, api, authorization))
	}
	return c.UsesIDs(api)
}

// Begin starts the probe of an incarnation without findings, and does not wait for it. If our own key is refused,
// the probe is left to the turns.
func (c *Capability) Begin(ctx context.Context) {
	if !c.settled(body.Chat) {
		c.ask(ctx, body.Chat, "")
	}
}

// settled reports whether a probe with our own key would show nothing new.
func (c *Capability) settled(api body.API) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.usesIDs[api] != Unknown || c.refused[api]
}

// ask runs the probe with one credential, unless it is under way or rests, and returns a channel that is closed when it is over. A failure with
// a client's credential is remembered for that client only.
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
		if found = c.UsesIDs(api); found != Unknown { // another probe has found it since the caller looked
			err = nil
			return
		}
		found, refused, err = c.askIDs(ctx, api, authorization)
	}()
	return asked.over
}

// forget forgets the failed probe that may be sent again first. It needs c.mu.
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

// askIDs sends the probe. refused says that the engine refused the credential or the model, which shows nothing; err
// is for no answer, or one that makes no sense. An engine without the endpoint of the API uses no ids.
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

// namesIDs reports whether a refusal blames the ids. Errors of the Messages API have no param; vLLM appends it to
// their text (testdata/exchanges/vllm-0.32-agents 13).
func namesIDs(api body.API, fault upstream.Fault) bool {
	return fault.Param == idsMember || strings.HasPrefix(fault.Message, idsMessage) || api == body.Messages && fault.Param == "" && strings.Contains(fault.Message, idsMember)
}

// firstModel returns the member of a request that names the model which the engine lists first, with a comma before it, "" if it lists none:
// an engine accepts a request without a model.
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

// Try asks the engine for one token with our own key, and returns the failure if there is one: of a request that no client has made it is
// the engine's. Where the engine refuses the key or the model, which says nothing, it returns otherwise.
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

// Keys is whether an engine checks the credentials that it is sent.
type Keys struct {
	*asker

	mu      sync.Mutex // held while the engine is asked
	checked Finding
}

// Checked reports whether the engine has refused a credential that nobody has. vLLM without --api-key takes any
// (its AuthenticationMiddleware guards /v1). It asks the engine until that has answered, for 2 s at most, and is false
// while another asks.
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

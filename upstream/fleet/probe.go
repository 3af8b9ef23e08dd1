package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"carryover/sse/rawjson"
	"carryover/upstream"
	"carryover/upstream/body"
	"carryover/upstream/fleet/facts"
)

// Engines that use forwarded ids refuse the probe at once; others run it as a request of one token. A probe without an
// answer is not repeated for a while.
const (
	idsLimit    = 5 * time.Second
	idsRetry    = 30 * time.Second
	modelsLimit = 2 * time.Second // the part of it for the list of models
)

// idsMember is the member that vLLM blames when forwarded ids are malformed (_reused_prompt_token_ids,
// renderers/online_renderer.py).
const idsMember = "kv_transfer_params.prompt_token_ids"

// UsesIDs says whether the endpoint of an API computes kv_transfer_params.prompt_token_ids instead of rendering the
// prompt. It sends nothing.
func (s *Incarnation) UsesIDs(api body.API) facts.Finding {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.usesIDs[api]
}

// ProbeIDs finds out what UsesIDs returns, with a request whose ids are malformed: an engine that reads them answers
// 400 and names them; one that ignores them answers 200, and then holds one block for its lease.
//
// An incarnation is probed until there is a finding. The probe uses our own key and the model that the engine lists
// first, so that no client's request can make it fail for others. All callers wait for the same probe, until ctx ends
// at the latest. A probe takes 5 s at most. After a failure of the engine (time-out, broken connection, an answer that
// makes no sense) the next one is sent after 30 s. A refusal (401, 403, 404, 429) proves nothing, and the next probe
// may follow at once; if our own key was refused, authorization is tried, where "" is none. For an incarnation that is
// not known there is no finding.
func (s *Incarnation) ProbeIDs(ctx context.Context, api body.API, authorization string) facts.Finding {
	if found := s.UsesIDs(api); found != facts.Unknown || !s.Known() {
		return found
	}
	wait(ctx, s.probe(ctx, api, ""))
	s.mu.Lock()
	found, refused := s.usesIDs[api], s.refused[api]
	s.mu.Unlock()
	if found != facts.Unknown || !refused || authorization == "" {
		return found
	}
	wait(ctx, s.probe(ctx, api, authorization))
	return s.UsesIDs(api)
}

// beginProbe starts the probe of an incarnation without findings, and does not wait for it. If our own key is refused,
// the probe is left to the turns.
func (s *Incarnation) beginProbe(ctx context.Context) {
	s.mu.Lock()
	asked := s.usesIDs[body.Chat] != facts.Unknown || s.refused[body.Chat]
	s.mu.Unlock()
	if !asked {
		s.probe(ctx, body.Chat, "")
	}
}

// probe runs the probe with one credential. A failure with a client's credential is remembered for that client only.
func (s *Incarnation) probe(ctx context.Context, api body.API, authorization string) (over <-chan struct{}) {
	return s.probes.ask(ctx, digest(api.Path(), authorization), func(ctx context.Context) error {
		if s.UsesIDs(api) != facts.Unknown {
			return nil // another probe has found it since the caller looked
		}
		found, refused, err := s.askIDs(ctx, api, authorization)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.usesIDs[api] = max(s.usesIDs[api], found) // No wins over Yes if two probes disagree
		if authorization == "" {
			s.refused[api] = refused
		}
		return err
	})
}

// askIDs sends the probe. refused says that the engine refused the credential or the model, which shows nothing; err
// is for no answer, or one that makes no sense. An engine without the endpoint of the API uses no ids.
func (s *Incarnation) askIDs(ctx context.Context, api body.API, authorization string) (found facts.Finding, refused bool, err error) {
	fields := probeFields(api)
	if model := s.firstModel(ctx, authorization); model != "" {
		fields["model"] = model
	}
	body, err := json.Marshal(fields)
	if err != nil {
		return facts.Unknown, false, fmt.Errorf("probe: %w", err)
	}
	status, answer, err := s.post(ctx, api.Path(), body, authorization)
	if err != nil {
		return facts.Unknown, false, fmt.Errorf("probe: %w", err)
	}
	switch {
	case status == http.StatusOK, api.Rendered() && unserved(status, answer):
		return facts.No, false, nil
	case status == http.StatusBadRequest && namesIDs(api, upstream.ReadFault(answer)):
		return facts.Yes, false, nil
	}
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusTooManyRequests:
		return facts.Unknown, true, nil
	}
	return facts.Unknown, false, fmt.Errorf("probe: status %d", status)
}

// probeFields returns a request of one token with malformed ids.
func probeFields(api body.API) map[string]any {
	fields := map[string]any{
		"kv_transfer_params": json.RawMessage(`{"do_remote_decode":true,"do_remote_prefill":false,"prompt_token_ids":[1,"x"]}`),
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
	return fault.Param == idsMember || api == body.Messages && fault.Param == "" && strings.Contains(fault.Message, idsMember)
}

// firstModel returns the model that the engine lists first, "" if it lists none; an engine accepts a request without a
// model.
func (s *Incarnation) firstModel(ctx context.Context, authorization string) string {
	ctx, cancel := context.WithTimeout(ctx, modelsLimit)
	defer cancel()
	e := s.engine
	status, list, err := e.fleet.cfg.Client.Fetch(ctx, e.Instance(), "/v1/models", authorization, maxModelList)
	if err != nil || status != http.StatusOK || !rawjson.Valid(list) {
		return ""
	}
	if id := gjson.GetBytes(list, "data.0.id"); id.Type == gjson.String {
		return id.String()
	}
	return ""
}

// post sends a small JSON body to the engine.
func (s *Incarnation) post(ctx context.Context, path string, body []byte, authorization string) (status int, answer []byte, err error) {
	return s.engine.fleet.cfg.Client.Post(ctx, s.engine.Instance(), path, body, authorization)
}

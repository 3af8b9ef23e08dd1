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
)

// The probe for the use of ids is refused at once by engines that use them; others
// run it as a request of one token. One that the engine failed to answer is not
// repeated for a while.
const (
	idsLimit    = 5 * time.Second
	idsRetry    = 30 * time.Second
	modelsLimit = 2 * time.Second // of that, for the list of models
)

// idsMember is how vLLM names the member at fault when forwarded ids are
// malformed (_reused_prompt_token_ids, renderers/online_renderer.py).
const idsMember = "kv_transfer_params.prompt_token_ids"

// UsesIDs tells whether the endpoint of an API uses kv_transfer_params.prompt_token_ids
// instead of rendering, and asks nothing.
func (s *Incarnation) UsesIDs(api upstream.API) Finding {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.usesIDs[api]
}

// ProbeIDs finds that out with ids that are none: an engine that reads them answers
// 400 and names them, one that ignores them answers 200, and then holds one block
// for its lease. An incarnation is probed until something is found, with our own key and
// the model that it lists first, so that no client's request can make the probe
// fail for others; callers that come meanwhile wait for the same probe, at the
// longest until ctx ends. A probe takes 5 s at most. One that failed by the engine's
// fault (time-out, broken connection, any answer that makes no sense) is repeated
// after 30 s. One that was not let in (401, 403, 404, 429) proves nothing and is
// repeated at once; where that befell our own key, authorization is tried, "" being
// none. Of an incarnation that is not known nothing is found.
func (s *Incarnation) ProbeIDs(ctx context.Context, api upstream.API, authorization string) Finding {
	if found := s.UsesIDs(api); found != Unknown || !s.Known() {
		return found
	}
	wait(ctx, s.probe(ctx, api, ""))
	s.mu.Lock()
	found, refused := s.usesIDs[api], s.refused[api]
	s.mu.Unlock()
	if found != Unknown || !refused || authorization == "" {
		return found
	}
	wait(ctx, s.probe(ctx, api, authorization))
	return s.UsesIDs(api)
}

// beginProbe starts the probe of an incarnation of which nothing is known, and does not wait
// for it. One that does not let us in with our own key is left to the turns.
func (s *Incarnation) beginProbe(ctx context.Context) {
	s.mu.Lock()
	asked := s.usesIDs[upstream.Chat] != Unknown || s.refused[upstream.Chat]
	s.mu.Unlock()
	if !asked {
		s.probe(ctx, upstream.Chat, "")
	}
}

// probe runs the probe with one credential. Failures of a client's own are
// remembered for that client only.
func (s *Incarnation) probe(ctx context.Context, api upstream.API, authorization string) (over <-chan struct{}) {
	return s.probes.ask(ctx, digest(api.Path(), authorization), func(ctx context.Context) error {
		if s.UsesIDs(api) != Unknown {
			return nil // since the caller looked
		}
		found, refused, err := s.askIDs(ctx, api, authorization)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.usesIDs[api] = max(s.usesIDs[api], found) // No, of two that disagree
		if authorization == "" {
			s.refused[api] = refused
		}
		return err
	})
}

// askIDs sends the probe. refused says that the engine refused the credential or the
// model, and has answered nothing; the error, that it gave no answer that makes sense.
// A model server need not have the endpoints of all APIs: one that it lacks uses no ids.
func (s *Incarnation) askIDs(ctx context.Context, api upstream.API, authorization string) (found Finding, refused bool, err error) {
	fields := probeFields(api)
	if model := s.firstModel(ctx, authorization); model != "" {
		fields["model"] = model
	}
	body, err := json.Marshal(fields)
	if err != nil {
		return Unknown, false, fmt.Errorf("probe: %w", err)
	}
	status, answer, err := s.post(ctx, api.Path(), body, authorization)
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

// probeFields is a request of one token, with ids that are none.
func probeFields(api upstream.API) map[string]any {
	fields := map[string]any{
		"kv_transfer_params": json.RawMessage(`{"do_remote_decode":true,"do_remote_prefill":false,"prompt_token_ids":[1,"x"]}`),
	}
	if api == upstream.Responses {
		fields["input"], fields["max_output_tokens"], fields["store"] = "x", 1, false
		return fields
	}
	fields["messages"], fields["max_tokens"] = []map[string]string{{"role": "user", "content": "x"}}, 1
	return fields
}

// namesIDs reports whether a refusal is that of the ids. Errors of the Messages API have no param: vLLM ends their text with it
// (testdata/exchanges/vllm-0.32-agents 13).
func namesIDs(api upstream.API, fault upstream.Fault) bool {
	return fault.Param == idsMember || api == upstream.Messages && fault.Param == "" && strings.Contains(fault.Message, idsMember)
}

// firstModel returns the model that the engine lists first, "" if it lists none. An
// engine takes a request that names none as one for it.
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

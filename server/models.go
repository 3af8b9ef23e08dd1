package server

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/labstack/echo/v4"

	"carryover/server/apierror"
	"carryover/server/pick"
	"carryover/upstream"
	"carryover/upstream/body"
	"carryover/upstream/fleet"
	"carryover/upstream/fleet/facts"
)

// maxModels bounds how many bytes of an engine's model list are relayed.
const maxModels = 4 << 20

// handleModels lists the models of all instances that answer. Each entry is the engine's own, because clients read its max_model_len and
// adapters. If engines judge the client's credential, the client gets the list once one engine has accepted the credential. While no list
// is known, the list of the first instance that answers is relayed.
func (q *questions) handleModels(c echo.Context) error {
	list, err := q.listModels(c.Request())
	if err != nil {
		q.failed(c.Response(), body.Chat, err)
		return nil
	}
	return c.Blob(http.StatusOK, "application/json", list)
}

// listModels returns the list of models. If it has to ask an engine, it occupies a slot as a turn does.
func (q *questions) listModels(r *http.Request) ([]byte, error) {
	authorization, err := q.requests.Authorization(r.Header)
	if err != nil {
		return nil, err
	}
	models := q.fleet.Catalogue.Models()
	if len(models) > 0 && !q.judged {
		return modelList(models), nil
	}
	tenant, err := q.requests.Tenant(r)
	if err != nil {
		return nil, err
	}
	client := q.requests.Reserve(r, tenant).Account
	lease, _, err := q.slots.Take(r.Context(), client)
	if err != nil {
		return nil, err
	}
	defer lease.GiveBack()
	body, err := q.fetchModels(r.Context(), authorization)
	if err == nil && len(models) > 0 {
		body = modelList(models)
	}
	return body, err
}

// modelList returns the body of an answer to /v1/models.
func modelList(models []facts.Model) []byte {
	list := []byte(`{"object":"list","data":[`)
	for i, model := range models {
		if i > 0 {
			list = append(list, ',')
		}
		list = append(list, model.Card...)
	}
	return append(list, "]}"...)
}

// fetchModels asks a few instances, decode before prefill, and returns the list of the first one that answers.
func (q *questions) fetchModels(ctx context.Context, authorization string) ([]byte, error) {
	var last error = apierror.Unavailable("decode_unavailable", "No engine is available.")
	for _, role := range []upstream.Role{upstream.RoleDecode, upstream.RolePrefill} {
		engines := slices.Clone(q.fleet.Engines(role))
		slices.SortStableFunc(engines, func(a, b *fleet.Engine) int {
			switch up := a.Reachable(); {
			case up == b.Reachable():
				return 0
			case up:
				return -1
			}
			return 1
		})
		for _, engine := range engines[:min(len(engines), pick.MaxDials)] {
			body, err := q.models(ctx, engine, authorization)
			if err == nil {
				return body, nil
			}
			last = err
			if q.judged && refusesCredential(err) {
				return nil, err // the other engines would refuse the credential too
			}
		}
	}
	return nil, last
}

// refusesCredential reports whether an engine refused the credential of a request: the client's, or this program's own if the client's is
// not forwarded.
func refusesCredential(err error) bool {
	var leg *upstream.LegError
	return errors.As(err, &leg) && leg.Refused()
}

func (q *questions) models(ctx context.Context, engine *fleet.Engine, authorization string) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, 10*time.Second, upstream.ErrFirstByteTimeout)
	defer cancel()
	leg := &upstream.LegError{Role: engine.Role, Instance: engine.Name, Kind: upstream.Broken, Sent: true, Forwarded: authorization != ""}
	status, body, err := q.legs.Fetch(ctx, engine.Instance(), "/v1/models", authorization, maxModels)
	switch {
	case err != nil:
		if leg.Err = err; status == 0 {
			leg.Kind = upstream.Dial
		}
		return nil, leg
	case status != http.StatusOK:
		leg.Kind, leg.Status = upstream.Status, status
		return nil, leg
	}
	return body, nil
}

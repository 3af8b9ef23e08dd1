package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/labstack/echo/v4"

	"carryover/server/admission"
	"carryover/server/apierror"
	"carryover/server/pick"
	"carryover/server/record"
	"carryover/server/request"
	"carryover/upstream"
	"carryover/upstream/body"
	"carryover/upstream/fleet"
	"carryover/upstream/fleet/facts"
)

// questions answers requests about models and counts of tokens. A question to an engine occupies a slot, as a turn does.
type questions struct {
	fleet    *fleet.Fleet
	legs     upstream.Legs
	requests *request.Reader
	slots    *admission.Slots
	errors   *apierror.Mapper
	judged   bool // engines judge the credentials of clients
}

// answer answers a request that is not a turn. If the client has left, it aborts the connection: a client that has only closed its
// sending side would otherwise get an empty 200.
func (q *questions) answer(c echo.Context, api body.API, text []byte, err error) error {
	if err == nil {
		return c.Blob(http.StatusOK, "application/json", text)
	}
	known := q.errors.Map(err)
	if known.Status == record.StatusClientGone {
		panic(http.ErrAbortHandler)
	}
	known.Write(c.Response(), api)
	return nil
}

const maxModels = 4 << 20

// handleModels lists the models of all instances that answer. Each entry is the engine's own, because clients read its max_model_len and
// adapters. If engines judge the client's credential, the client gets the list once one engine has accepted the credential. While no list is
// known, the list of the first instance that answers is relayed.
func (q *questions) handleModels(c echo.Context) error {
	list, err := q.listModels(c.Request())
	return q.answer(c, body.Chat, list, err)
}

// listModels occupies a slot, as a turn does, if it has to ask an engine.
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
			if leg := upstream.LegOf(err); q.judged && leg != nil && leg.Refused() {
				return nil, err // the other engines would refuse the client's credential too
			}
		}
	}
	return nil, last
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

func (q *questions) handleCountTokens(c echo.Context) error {
	n, err := q.countTokens(c.Response(), c.Request())
	return q.answer(c, body.Messages, fmt.Appendf(nil, `{"input_tokens":%d}`, n), err)
}

// countTokens occupies a slot, as a turn does, and its body counts against the client's share.
func (q *questions) countTokens(w http.ResponseWriter, r *http.Request) (int, error) {
	w.Header().Set("X-Request-Id", requestID(r))
	tenant, err := q.requests.Tenant(r)
	if err != nil {
		return 0, err
	}
	share := q.requests.Reserve(r, tenant)
	defer share.GiveBack()
	var lease admission.Lease
	defer lease.GiveBack()
	raw, err := q.requests.Receive(w, r, &share, func() (err error) {
		lease, _, err = q.slots.Take(r.Context(), share.Account)
		return err
	})
	if err != nil {
		return 0, err
	}
	req, err := body.ParseRequest(body.Messages, raw)
	if err != nil {
		return 0, err
	}
	authorization, err := q.requests.Authorization(r.Header)
	if err != nil {
		return 0, err
	}
	return q.countOn(r.Context(), req, authorization)
}

func (q *questions) countOn(ctx context.Context, req *body.Request, authorization string) (int, error) {
	var asked []*fleet.Engine
	var last error
	for range pick.MaxDials {
		engine, err := q.fleet.Choose(upstream.RolePrefill, fleet.Hint{Model: req.Model}, func(e *fleet.Engine) bool { return slices.Contains(asked, e) })
		switch {
		case err != nil && last != nil:
			return 0, last
		case errors.Is(err, upstream.ErrNoModel):
			return 0, apierror.NoModel(req.Model)
		case err != nil:
			return 0, apierror.Unavailable("prefill_unavailable", "No prefill engine is available.")
		}
		asked = append(asked, engine)
		n, err := engine.Last().Prompts.Count(ctx, req, authorization)
		var leg *upstream.LegError
		switch {
		case err == nil:
			return n, nil
		case errors.Is(err, facts.ErrNotComparable):
			last = apierror.Refused(http.StatusNotFound, "not_found", "The engines do not count tokens.")
		case ctx.Err() != nil, errors.As(err, &leg) && leg.Kind == upstream.Status && leg.Status < http.StatusInternalServerError:
			return 0, err // another instance would answer the same
		default:
			last = err
		}
	}
	return 0, last
}

func requestID(r *http.Request) string {
	return cmp.Or(request.ID(r.Header), upstream.NewID())
}

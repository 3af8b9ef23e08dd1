package server

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"

	"github.com/labstack/echo/v4"

	"carryover/server/admission"
	"carryover/server/apierror"
	"carryover/server/pick"
	"carryover/server/request"
	"carryover/upstream"
	"carryover/upstream/body"
	"carryover/upstream/fleet"
	"carryover/upstream/fleet/facts"
)

// handleCountTokens serves /v1/messages/count_tokens: how many tokens a prefill instance counts in a prompt. Such a request is not a turn.
func (q *questions) handleCountTokens(c echo.Context) error {
	w, r := c.Response(), c.Request()
	n, err := q.countTokens(w, r)
	if err != nil {
		q.failed(w, body.Messages, err)
		return nil
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(strconv.AppendInt([]byte(`{"input_tokens":`), int64(n), 10)) // an error means that the client has gone
	_, _ = w.Write([]byte("}"))
	return nil
}

// countTokens reads the request in the same way as a turn, and has a prefill instance count. Like a turn it occupies a slot, and its body
// counts against the client's share while it is read.
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

// countOn asks prefill instances one after another until one answers.
func (q *questions) countOn(ctx context.Context, req *body.Request, authorization string) (int, error) {
	var asked []*fleet.Engine
	var last error
	for range pick.MaxDials {
		engine, err := q.fleet.Choose(upstream.RolePrefill, fleet.Hint{Model: req.Model()}, func(e *fleet.Engine) bool { return slices.Contains(asked, e) })
		switch {
		case err != nil && last != nil:
			return 0, last
		case errors.Is(err, upstream.ErrNoModel):
			return 0, apierror.NoModel(req.Model())
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

// requestID returns the request id for an answer that belongs to no turn.
func requestID(r *http.Request) string {
	return cmp.Or(request.ID(r.Header), upstream.NewID())
}

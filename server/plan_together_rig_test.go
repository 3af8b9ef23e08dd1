package server_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"carryover/server"
	"carryover/upstream"
	"carryover/upstream/body"
)

// together is a connector that sends both legs at once, as Mooncake's does: both compute the same ids, name a transfer of their own, and
// nothing is left for a next turn.
type together struct {
	upstream.Connector                                    // which releases and hands back, of which there is nothing
	check              func(upstream.PrefillAnswer) error // nil checks nothing
}

func (together) Traits() upstream.Traits { return upstream.Traits{IDs: true} }

func (c together) Plan(_ context.Context, t upstream.Transfer) (upstream.Plan, error) {
	api, transfer, ids := t.Request.API, t.RequestID, strings.ReplaceAll(fmt.Sprint(t.PromptIDs), " ", ",")
	leg := func(decode bool) upstream.LegPlan {
		params := fmt.Appendf(nil, `{"do_remote_decode":%t,"do_remote_prefill":%t,"transfer_id":"x-%s","prompt_token_ids":%s`, !decode, decode, transfer, ids)
		if decode {
			params = fmt.Appendf(params, `,"remote_request_id":"%s"`, transfer)
		}
		return upstream.LegPlan{API: api, Members: []body.Member{{Name: "kv_transfer_params", Value: append(params, '}')}, {Name: "stop_token_ids"}}}
	}
	handover := &upstream.Handover{Cached: -1, Bound: true, Leg: func([]byte) upstream.LegPlan { return leg(true) }}
	return upstream.Plan{
		Prefill: leg(false), Together: handover,
		Handover: func(answer upstream.PrefillAnswer) (*upstream.Handover, error) {
			if c.check != nil {
				return handover, c.check(answer)
			}
			return handover, nil
		},
	}, nil
}

func (together) ParseTicket([]byte, int) (upstream.TicketParams, error) {
	return upstream.TicketParams{}, errors.New("nothing is kept")
}

// togetherRig is a rig whose legs go out at once.
func togetherRig(t *testing.T, s setup) *rig {
	t.Helper()
	if s.deps == nil {
		s.deps = func(d *server.Deps) { d.Connector = together{} }
	}
	r := newRig(t, s)
	r.prefill[0].tokenize = func(string) string { return `{"count":3,"tokens":[7,8,9]}` }
	r.prefill[0].always(func(w http.ResponseWriter, _ *http.Request, l leg) {
		answerJSON(w, `{"id":"cmpl-`+l.id()+`","choices":[]}`)
	})
	for _, d := range r.decode {
		d.always(r.afterPrefill(d.fallback))
	}
	return r
}

// afterPrefill is a decode engine that waits for the KV of its prefill leg, as all do: one that answered before would end its turn,
// and the prefill leg with it, perhaps before that is sent.
func (r *rig) afterPrefill(next behaviour) behaviour {
	return func(w http.ResponseWriter, q *http.Request, l leg) {
		from, waits := l.params()["remote_request_id"]
		for waits && !slices.ContainsFunc(r.prefill, func(p *engine) bool {
			return slices.ContainsFunc(p.seen(), func(sent leg) bool { return sent.id() == from })
		}) {
			select {
			case <-q.Context().Done():
				return
			case <-time.After(time.Millisecond):
			}
		}
		next(w, q, l)
	}
}

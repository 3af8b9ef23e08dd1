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
	"carryover/upstream/fleet"
)

// together is a connector that sends both legs at once, as Mooncake's wants it: both compute the
// same ids, name a transfer of their own, and nothing is left for a next turn.
type together struct{}

func (together) Traits() upstream.Traits { return upstream.Traits{IDs: true, Introduce: introduce} }

// introduce asks an engine's models for its id, as a bootstrap server is asked.
func introduce(ctx context.Context, instance *upstream.Instance, fetch upstream.Fetch) (any, error) {
	status, body, err := fetch(ctx, instance.BaseURL, "/v1/models")
	if err != nil || status != http.StatusOK {
		return nil, errors.Join(err, fmt.Errorf("status %d", status))
	}
	return fmt.Sprintf("%s-%d", instance.Name, len(body)), nil
}

func (together) Plan(t upstream.Transfer) (upstream.Plan, error) {
	api, transfer, ids := t.Request.API(), t.RequestID, fmt.Sprint(t.PromptIDs)
	leg := func(decode bool) upstream.LegPlan {
		peer := t.OfDecode
		if decode {
			peer = t.OfPrefill
		}
		params := fmt.Appendf(nil, `{"do_remote_decode":%t,"do_remote_prefill":%t,"transfer_id":"x-%[3]s","prompt_token_ids":%[4]s,"remote_engine_id":"%[5]v"`,
			!decode, decode, transfer, strings.ReplaceAll(ids, " ", ","), peer)
		if decode {
			params = fmt.Appendf(params, `,"remote_request_id":"p-%s"`, transfer)
		}
		id := "p-" + transfer
		if decode {
			id = "d-" + transfer
		}
		return upstream.LegPlan{API: api, RequestID: id, Members: []body.Member{
			{Name: "kv_transfer_params", Value: append(params, '}')}, {Name: "stop_token_ids"},
		}}
	}
	return upstream.Plan{
		Order: upstream.Together, Prefill: leg(false),
		Handover: func(upstream.PrefillAnswer) (*upstream.Handover, error) {
			return &upstream.Handover{Cached: -1, Bound: true, Leg: func([]byte) upstream.LegPlan { return leg(true) }}, nil
		},
	}, nil
}

func (together) ParseTicket([]byte, int) (upstream.TicketParams, error) {
	return upstream.TicketParams{}, errors.New("nothing is kept")
}

func (together) Release(upstream.TicketOffer, string) (upstream.ReleaseLeg, error) {
	return upstream.ReleaseLeg{}, errors.New("nothing to release")
}

func (together) HandBack(upstream.TicketOffer, string, string) (upstream.ReleaseLeg, error) {
	return upstream.ReleaseLeg{}, errors.New("nothing to hand back")
}

// togetherRig is a rig whose legs go out at once.
func togetherRig(t *testing.T, s setup) *rig {
	t.Helper()
	if s.deps == nil {
		s.deps = func(d *server.Deps) { d.Connector = together{} }
	}
	also := s.fleet
	s.fleet = func(c *fleet.Config) {
		c.Introduce = introduce
		if also != nil {
			also(c)
		}
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

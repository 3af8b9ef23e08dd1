// Package mooncake speaks to vLLM's MooncakeConnector (mooncake_connector.py, 0.32). Both legs are sent at once with the same transfer_id, and
// decode waits until prefill has pushed the KV of its prompt. No answer carries kv_transfer_params, and nothing is left for a next turn: with both
// flags set an engine keeps nothing (measured). So later turns gain only from the instances' prefix caches.
//
// Decode takes blocks by position and compares nothing: a shorter prompt than prefill's gives a silently wrong answer (measured). Both legs
// therefore compute the same ids (connector.go), and prefill's answer has to repeat them (check).
//
// Decode's leg names the prefill engine by an id that each incarnation of prefill draws anew; each attempt asks prefill's bootstrap server for it
// (query.go). If the KV never comes, decode waits for VLLM_MOONCAKE_ABORT_REQUEST_TIMEOUT, 480 s by default, and then answers 500. So each prefill
// leg must end by its length: an engine that ends a request by a stop token drops the KV, and check detects that.
package mooncake

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync/atomic"

	"carryover/sse/rawjson"
	"carryover/upstream"
	"carryover/upstream/body"
	"carryover/upstream/connector"
)

// Connector is vLLM's MooncakeConnector. No field may change after the first use.
type Connector struct {
	connector.NoTickets
	// BootstrapPort is VLLM_MOONCAKE_BOOTSTRAP_PORT of prefill instances without a port of their own (upstream.Instance.KVPort).
	BootstrapPort int
	// Fetch gets an absolute URL of a bootstrap server and reads at most that many bytes.
	Fetch func(ctx context.Context, url string, most int64) (status int, body []byte, err error)

	turns atomic.Uint32 // rotates the ranks behind one address
}

// Traits says that legs carry ids.
func (*Connector) Traits() upstream.Traits { return upstream.Traits{IDs: true} }

// Plan sends both legs at once, with a transfer id that no other attempt has: a second decode leg with the same id would wait until its time limit
// and fail (measured, 0.32). It asks prefill's bootstrap server for the engine id that decode needs; if that fails, the error is a
// *upstream.LegError of a leg that was not sent.
func (c *Connector) Plan(ctx context.Context, t upstream.Transfer) (upstream.Plan, error) {
	if len(t.PromptIDs) == 0 {
		return upstream.Plan{}, errNoIDs
	}
	id, rank, err := c.query(ctx, t.Prefill)
	if err != nil {
		return upstream.Plan{}, &upstream.LegError{Role: upstream.RolePrefill, Instance: t.Prefill.Name, Kind: upstream.Dial, Err: err}
	}
	// If one of these keys is missing, decode never answers, and it dies when the client leaves (measured, 0.32).
	transfer := quoted("xfer-" + rand.Text())
	prefill := `{"do_remote_decode":true,"do_remote_prefill":false,"transfer_id":` + transfer
	decode := `{"do_remote_decode":false,"do_remote_prefill":true,"transfer_id":` + transfer + `,"remote_engine_id":` + quoted(id) +
		`,"remote_bootstrap_addr":` + quoted(c.bootstrap(t.Prefill, t.Prefill.PeerHost()))
	prompt := t.PromptIDs // so that Handover holds only the ids, not the request
	api, ids := t.Request.API, rawjson.AppendIDs(nil, prompt)
	handover := &upstream.Handover{
		Cached: -1,
		Leg:    func([]byte) upstream.LegPlan { return upstream.LegPlan{API: api, Members: carry(api, decode, ids)} },
		Rescue: func() []body.Member { return carry(body.Text, decode, ids) },
	}
	return upstream.Plan{
		Prefill:  upstream.LegPlan{API: api, Rank: rank, Members: append(carry(api, prefill, ids), lengthCapped()...)},
		Together: handover,
		Handover: func(answer upstream.PrefillAnswer) (*upstream.Handover, error) {
			return handover, check(answer, prompt)
		},
	}, nil
}

// carry returns the members of a leg that carries ids. params is the text of the leg's kv_transfer_params without the closing brace. A chat carries
// the ids in its params (vLLM 0.28; an older engine renders the messages, on both legs), a text completion as its prompt.
func carry(api body.API, params string, ids []byte) []body.Member {
	if api == body.Text {
		return []body.Member{{Name: "kv_transfer_params", Value: []byte(params + "}")}, {Name: "prompt", Value: ids}}
	}
	return []body.Member{{Name: "kv_transfer_params", Value: fmt.Appendf(nil, `%s,"prompt_token_ids":%s}`, params, ids)}}
}

func quoted(text string) string { return string(rawjson.Quote(text)) }

// lengthCapped returns the members that make a prefill leg end by its length only: engines keep only the KV of requests that end as
// FINISHED_LENGTH_CAPPED (mooncake_connector.py, request_finished). They also ask for the computed ids.
func lengthCapped() []body.Member {
	return []body.Member{
		{Name: "stop_token_ids"}, {Name: "stop"},
		{Name: "ignore_eos", Value: []byte("true")},
		{Name: "return_token_ids", Value: []byte("true")},
	}
}

// Decode has no use for a prefill leg that has answered 200, or for the whole attempt, for these reasons.
var (
	errNotCapped = errors.New("prefill dropped the KV, because the request did not end by its length")
	errOtherIDs  = errors.New("prefill did not compute the ids that it was sent")
	errNoIDs     = errors.New("mooncake: the prompt has no ids")
)

// check returns an error if decode must not use, or will not get, the KV of a prefill engine that has answered. If the answer repeats other ids
// than it was sent, the KV belongs to another prompt, and decode takes blocks by position. An engine that repeats none is too old to take ids, and
// renders the prompt as decode's engine does. If the request did not end by its length, prefill has thrown the KV away, whatever the status of the
// answer (recordings 05 and 06).
func check(answer upstream.PrefillAnswer, ids []uint32) error {
	choice, _ := rawjson.First(rawjson.Get(answer.Body, "choices"))
	switch {
	case answer.PromptIDs != nil && !rawjson.EqualIDs(answer.PromptIDs, ids):
		return errOtherIDs
	case rawjson.GetText(choice, "finish_reason") != "length":
		return errNotCapped
	}
	return nil
}

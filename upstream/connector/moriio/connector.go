package moriio

import (
	"crypto/rand"
	"errors"
	"fmt"
	"hash/fnv"
	"strconv"

	"carryover/sse/rawjson"
	"carryover/upstream"
	"carryover/upstream/body"
	"carryover/upstream/connector"
)

// Why no hand-over is possible between two instances.
const (
	whyNotRegistered = "not_registered" // an instance has not announced an address of this connector's form
	whyTransferMode  = "transfer_mode"  // one instance is in WRITE mode, the other in READ mode
)

// The values of Announcement.Mode.
const (
	modeRead  = "READ"
	modeWrite = "WRITE" // vLLM's default
)

var errNoIDs = errors.New("moriio: the prompt has no ids")

// Connector is vLLM's MoRIIOConnector.
type Connector struct{ connector.NoTickets }

// Traits says that legs carry ids, and that decode engines serve nothing without a prefill engine.
func (Connector) Traits() upstream.Traits { return upstream.Traits{IDs: true, NeedsPrefill: true} }

// Plan sends both legs in the order that the engines' mode needs. It returns an error if the prompt has no ids.
func (Connector) Plan(t upstream.Transfer) (upstream.Plan, error) {
	p, ok := addressOf(t.Prefill)
	d, also := addressOf(t.Decode)
	mode := modeOf(t.Prefill)
	switch {
	case !ok || !also:
		return upstream.Plan{Order: upstream.DecodeAlone, Why: whyNotRegistered}, nil
	case mode != modeOf(t.Decode):
		return upstream.Plan{Order: upstream.DecodeAlone, Why: whyTransferMode}, nil
	case len(t.PromptIDs) == 0:
		return upstream.Plan{}, errNoIDs
	}
	a := attempt{
		Transfer: t, id: addressedID(t), transfer: newTransferID(), rank: rankOf(t), ids: rawjson.AppendIDs(nil, t.PromptIDs),
	}
	plan := upstream.Plan{
		Order:   upstream.Together,
		Prefill: a.leg(a.prefillRank(), a.params(true, d, t.Decode), connector.Capped()...),
		Handover: func(upstream.PrefillAnswer) (*upstream.Handover, error) {
			return a.handover(a.params(false, p, t.Prefill)), nil
		},
		Check: a.check,
	}
	if mode == modeRead {
		plan.Order, plan.Check = upstream.PrefillFirst, nil
		plan.Handover = a.answered
	}
	return plan, nil
}

func modeOf(i *upstream.Instance) string {
	if i.Announced.Mode == "" {
		return modeWrite
	}
	return i.Announced.Mode
}

// newTransferID returns an id that no other attempt has: engines file the transfers that they wait for under it.
func newTransferID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails since Go 1.24
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("tx-%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// rankOf returns the data-parallel rank of prefill for an attempt, or -1 if the instance has only one. The attempt's id decides, which
// spreads attempts over the ranks. Each rank has its own KV, and decode has to know whose KV to take. If an instance stands for one
// rank, its rank is returned.
func rankOf(t upstream.Transfer) int {
	size := t.Prefill.Announced.DPSize
	if size <= 1 {
		return -1
	}
	if t.Prefill.Ranked {
		return t.Prefill.Rank
	}
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(t.RequestID)) // never fails
	return int(hash.Sum32() % uint32(size))
}

// attempt has the values that both legs of an attempt use.
type attempt struct {
	upstream.Transfer
	id, transfer string
	rank         int    // prefill's data-parallel rank, or -1
	ids          []byte // the ids of the prompt, a JSON list
}

// prefillRank returns the rank that prefill's leg names, "" if it names none.
func (a *attempt) prefillRank() string {
	if a.rank < 0 {
		return ""
	}
	return strconv.Itoa(a.rank)
}

// decodeRank returns the rank that decode's leg names: prefill's rank, as in vLLM's example proxy, or "" if decode has no such rank.
func (a *attempt) decodeRank() string {
	if a.rank >= max(a.Decode.Announced.DPSize, 1) {
		return ""
	}
	return a.prefillRank()
}

// leg returns a leg with params and with the ids to compute. A chat leg has the ids in its params (connector.IDsMember).
func (a *attempt) leg(rank string, params []byte, more ...body.Member) upstream.LegPlan {
	api := a.Request.API()
	members := append(more, body.Member{Name: "kv_transfer_params", Value: params})
	if api == body.Text {
		members = append(members, body.Member{Name: "prompt", Value: a.ids})
	}
	return upstream.LegPlan{API: api, RequestID: a.id, Rank: rank, Members: members}
}

// handover returns the hand-over with decode's params. Decode's token limits are the client's limits. vLLM's example proxy subtracts one,
// as if prefill's token were part of the answer, but it drops that token, and decode computes it again.
func (a *attempt) handover(params []byte) *upstream.Handover {
	leg := a.leg(a.decodeRank(), params)
	return &upstream.Handover{
		Cached: -1, Bound: true, // the id and prefill's connection belong to one decode instance
		Leg:     func([]byte) upstream.LegPlan { return leg },
		Rewrite: renamed{request: a.id, shown: a.RequestID},
	}
}

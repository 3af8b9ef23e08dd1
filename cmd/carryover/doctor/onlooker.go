package doctor

import (
	"context"
	"encoding/json"
	"sync"
	"sync/atomic"
	"time"

	"carryover/convcache"
	"carryover/server"
	"carryover/server/record"
	"carryover/upstream"
)

// onlooker observes what passes between the parts of the program while turns run, and changes nothing.
type onlooker struct {
	mu sync.Mutex // guards the rest
	prefill,
	decode kvPlace
	stored []storedTicket
	legs   atomic.Int64 // prefill legs under way, releases included, and decode legs until they answer

	records chan record.Turn
}

// kvPlace is the address at which an engine says that others find its KV, and the address that the proxy passes on.
type kvPlace struct {
	told    bool
	host    string // as the engine reported it
	passed  string // as the other engine was told, "" if it was not told
	expires bool
}

// storedTicket is a ticket that a turn has left.
type storedTicket struct {
	conversation        convcache.Key
	id                  convcache.TicketID
	decode, incarnation string // which hold its blocks
}

func newOnlooker() *onlooker { return &onlooker{records: make(chan record.Turn, MaxProbeTurns)} }

// watch puts the onlooker between the server and what it works with.
func (w *onlooker) watch(deps *server.Deps) {
	deps.Connector = watchedConnector{deps.Connector, w}
	deps.Store = watchedStore{deps.Store, w}
	deps.Legs = watchedLegs{deps.Legs, w}
	deps.Observers = append(deps.Observers, func(rec *record.Turn) { w.records <- *rec })
}

// places returns the addresses that the engines have reported for their KV.
func (w *onlooker) places() (prefill, decode kvPlace) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.prefill, w.decode
}

// left returns the tickets that turns have left.
func (w *onlooker) left() []storedTicket {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stored
}

// kvMembers are the members of params that the onlooker reads.
type kvMembers struct {
	Host    *string          `json:"remote_host"`
	Expires *json.RawMessage `json:"remote_blocks_expiry_time"`
}

// told records what an engine reports about itself.
func (w *onlooker) told(at *kvPlace, params []byte) {
	var m kvMembers
	if params == nil || json.Unmarshal(params, &m) != nil || m.Host == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	at.told, at.host, at.expires = true, *m.Host, m.Expires != nil
}

// passed records what the other engine is told about it.
func (w *onlooker) passed(at *kvPlace, leg upstream.LegPlan) {
	for _, member := range leg.Members {
		var m kvMembers
		if member.Name == "kv_transfer_params" && json.Unmarshal(member.Value, &m) == nil && m.Host != nil {
			w.mu.Lock()
			at.passed = *m.Host
			w.mu.Unlock()
		}
	}
}

// watchedConnector sees the params that pass.
type watchedConnector struct {
	server.Connector

	onlooker *onlooker
}

// Plan implements server.Connector.
func (c watchedConnector) Plan(transfer upstream.Transfer) (upstream.Plan, error) {
	plan, err := c.Connector.Plan(transfer)
	w := c.onlooker
	if err != nil || plan.Handover == nil {
		return plan, err
	}
	if transfer.Offer.Ticket != nil && !transfer.Offer.Release {
		w.passed(&w.decode, plan.Prefill)
	}
	handover := plan.Handover
	plan.Handover = func(answer upstream.PrefillAnswer) (*upstream.Handover, error) {
		w.told(&w.prefill, answer.Params)
		handed, err := handover(answer)
		if err == nil && handed != nil && handed.Leg != nil {
			leg := handed.Leg
			handed.Leg = func(ids []byte) upstream.LegPlan {
				planned := leg(ids)
				w.passed(&w.prefill, planned)
				return planned
			}
		}
		return handed, err
	}
	return plan, err
}

// ParseTicket implements server.Connector.
func (c watchedConnector) ParseTicket(final []byte, blockSize int) (upstream.TicketParams, error) {
	c.onlooker.told(&c.onlooker.decode, final)
	return c.Connector.ParseTicket(final, blockSize)
}

// watchedStore sees the tickets that turns leave.
type watchedStore struct {
	server.Store

	onlooker *onlooker
}

// Put implements server.Store.
func (s watchedStore) Put(ctx context.Context, key convcache.Key, ticket convcache.Ticket, ttl time.Duration) ([]convcache.Ticket, convcache.Outcome) {
	s.onlooker.mu.Lock()
	s.onlooker.stored = append(s.onlooker.stored, storedTicket{key, ticket.ID, ticket.Decode.Instance, ticket.Decode.Incarnation})
	s.onlooker.mu.Unlock()
	return s.Store.Put(ctx, key, ticket, ttl)
}

// watchedLegs counts the legs that are under way.
type watchedLegs struct {
	server.Legs

	onlooker *onlooker
}

// Decode implements server.Legs.
func (l watchedLegs) Decode(ctx context.Context, leg upstream.Leg, limits upstream.Limits) (*upstream.Stream, error) {
	l.onlooker.legs.Add(1)
	defer l.onlooker.legs.Add(-1)
	return l.Legs.Decode(ctx, leg, limits)
}

// Prefill implements server.Legs.
func (l watchedLegs) Prefill(ctx context.Context, leg upstream.Leg) (upstream.PrefillAnswer, error) {
	l.onlooker.legs.Add(1)
	defer l.onlooker.legs.Add(-1)
	return l.Legs.Prefill(ctx, leg)
}

// HandBack implements server.Legs: releases go by it too.
func (l watchedLegs) HandBack(ctx context.Context, leg upstream.Leg) (upstream.PrefillAnswer, error) {
	l.onlooker.legs.Add(1)
	defer l.onlooker.legs.Add(-1)
	return l.Legs.HandBack(ctx, leg)
}

package telemetry

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"carryover/convcache"
	"carryover/server"
	"carryover/server/record"
	"carryover/upstream"
	"carryover/upstream/fleet"
)

// State is the state that is read whenever metrics are collected.
type State struct {
	Fleet *fleet.Fleet
	Store *Store
	// Server returns the server, nil while there is none yet.
	Server func() *server.Server
	// Redis returns server.RedisUp if Redis answers, or another word. It is nil if tickets are stored in this process.
	Redis   func() string
	Version string
}

// Watch registers the state to be read whenever metrics are collected. Nothing is reported about instances that were removed.
func (m *Metrics) Watch(state State) error {
	o := &observables{maker: maker{meter: m.meter}}
	reads := []func(metric.Observer){o.fleet(state), o.server(state), o.program(state)}
	err := errors.Join(o.errs...)
	if err == nil {
		_, err = m.meter.RegisterCallback(func(_ context.Context, to metric.Observer) error {
			for _, read := range reads {
				read(to)
			}
			return nil
		}, o.all...)
	}
	if err != nil {
		return fmt.Errorf("watch state: %w", err)
	}
	return nil
}

// observables makes instruments that are read on collection, and collects the errors.
type observables struct {
	maker
	all []metric.Observable
}

func (o *observables) gauge(name, unit, what string) metric.Int64ObservableGauge {
	g := kept[metric.Int64ObservableGauge](&o.maker)(o.meter.Int64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(what)))
	o.all = append(o.all, g)
	return g
}

func (o *observables) fraction(name, unit, what string) metric.Float64ObservableGauge {
	g := kept[metric.Float64ObservableGauge](&o.maker)(o.meter.Float64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(what)))
	o.all = append(o.all, g)
	return g
}

func (o *observables) counter(name, unit, what string) metric.Int64ObservableCounter {
	c := kept[metric.Int64ObservableCounter](&o.maker)(o.meter.Int64ObservableCounter(name, metric.WithUnit(unit), metric.WithDescription(what)))
	o.all = append(o.all, c)
	return c
}

// label is the one label of an observation.
func label(name, value string) metric.ObserveOption {
	return metric.WithAttributes(attribute.String(name, value))
}

// fleet makes what is known of instances.
func (o *observables) fleet(state State) func(metric.Observer) {
	is := o.gauge("carryover.instance.state", instanceUnit, "1 for the state that an instance is in.")
	inFlight := o.gauge("carryover.instance.in_flight", requestUnit, "Attempts of this replica on an instance.")
	waiting := o.gauge("carryover.instance.waiting", requestUnit, "Requests that wait at an instance, as it told last.")
	usage := o.fraction("carryover.instance.kv_usage", ratioUnit, "Share of an instance's KV cache that is in use, as it told last.")
	pinned := o.gauge("carryover.pinned.tokens", tokenUnit, "Tokens of a decode instance's KV cache that this replica's tickets and answers pin, until they are read, released or expired.")
	cache := o.gauge("carryover.kv_cache.tokens", tokenUnit, "Tokens that an instance's KV cache holds.")
	budget := o.gauge("carryover.pinned_budget.tokens", tokenUnit, "Tokens of a decode instance's KV cache that tickets may pin.")
	return func(to metric.Observer) {
		owner := state.Server()
		observe := func(e *fleet.Engine) {
			live := e.Live()
			name, role := attribute.String("instance", e.Name), attribute.String("role", e.Role.String())
			both := metric.WithAttributeSet(attribute.NewSet(name, role))
			to.ObserveInt64(is, 1, metric.WithAttributes(name, role, attribute.String("state", live.State)))
			to.ObserveInt64(inFlight, int64(live.InFlight), both)
			if !live.Read.IsZero() {
				to.ObserveInt64(waiting, int64(live.Waiting), both)
				to.ObserveFloat64(usage, live.Usage, both)
			}
			if live.KVTokens > 0 {
				to.ObserveInt64(cache, int64(live.KVTokens), both)
			}
			if owner == nil || e.Role != upstream.RoleDecode {
				return
			}
			decode := label("instance", e.Name)
			to.ObserveInt64(pinned, int64(owner.Pinned(e)), decode)
			if most := owner.PinnedBudget(e); most > 0 {
				to.ObserveInt64(budget, int64(most), decode)
			}
		}
		for _, e := range state.Fleet.Draining() {
			observe(e) // first: another of its name may have taken its place
		}
		for _, role := range []upstream.Role{upstream.RolePrefill, upstream.RoleDecode} {
			for _, e := range state.Fleet.Engines(role) {
				observe(e)
			}
		}
	}
}

// server makes what the server counts, and its state. Legs of hand-backs belong to no turn, so no turn counts them.
func (o *observables) server(state State) func(metric.Observer) {
	releases := o.counter("carryover.releases", ticketUnit, "Releases of tickets that nobody used, by the leg that carried them: one of a turn, or of our own.")
	stranded := o.counter("carryover.stranded_handovers", requestUnit, "Hand-overs of prefill that no leg to decode has taken: their blocks wait for their lease to end.")
	quarantines := o.counter("carryover.quarantines", instanceUnit, "Incarnations of prefill instances that this replica has quarantined.")
	shed := o.counter("carryover.connections.shed", "{connection}", "Idle connections of clients that made room for others.")
	queue := o.gauge("carryover.queue.length", turnUnit, "Turns that wait: for a place of the server, or for an instance.")
	open := o.gauge("carryover.open.turns", turnUnit, "Turns that have their place.")
	active := kept[metric.Int64ObservableUpDownCounter](&o.maker)(o.meter.Int64ObservableUpDownCounter("http.server.active_requests",
		metric.WithUnit(requestUnit), metric.WithDescription("Requests for answers of models that have a place or wait for one.")))
	o.all = append(o.all, active)
	tickets := o.gauge("carryover.tickets.held", ticketUnit, "Tickets of this replica's making in the store, as far as it knows.")
	ended := o.counter("carryover.hand_backs", ticketUnit, "Tickets that were taken in order to hand their KV back to prefill, by what came of it.")
	due := o.gauge("carryover.hand_back.waiting", ticketUnit, "Tickets that no turn is waited for any more, and that wait for their leg.")
	used := o.gauge("carryover.hand_back.memory", byteUnit, "Memory that the ids of tickets take which may be handed back.")
	choices := o.counter("carryover.ticket.choices", ticketUnit, "Choices for tickets at the ends of their answers: a turn may use it for a while, or it is handed back or released at once.")
	return func(to metric.Observer) {
		owner := state.Server()
		if owner == nil {
			return
		}
		counts := owner.Counts()
		for by, n := range map[string]record.Releases{"piggybacked": counts.Piggybacked, "leg": counts.Own} {
			for result, n := range map[string]uint64{"sent": n.Sent, "failed": n.Failed, "requeued": n.Requeued} {
				to.ObserveInt64(releases, int64(n), metric.WithAttributes(attribute.String("by", by), attribute.String("result", result)))
			}
		}
		to.ObserveInt64(stranded, int64(counts.Stranded))
		to.ObserveInt64(quarantines, int64(counts.Quarantines))
		to.ObserveInt64(shed, int64(counts.Shed))
		toBegin, forInstance := owner.Waiting()
		to.ObserveInt64(queue, int64(toBegin), label("queue", "place"))
		to.ObserveInt64(queue, int64(forInstance), label("queue", "instance"))
		to.ObserveInt64(open, int64(owner.Open()))
		to.ObserveInt64(active, int64(owner.Open()+toBegin), metric.WithAttributes(attrMethod.String(methodPost), attrScheme.String(schemeHTTP)))
		to.ObserveInt64(tickets, int64(owner.Tickets()))
		for outcome, n := range map[string]uint64{"done": counts.HandBacks.Done, "failed": counts.HandBacks.Failed, "requeued": counts.HandBacks.Requeued} {
			to.ObserveInt64(ended, int64(n), label("outcome", outcome))
		}
		for choice, n := range map[string]uint64{"ticket": counts.Choices.Ticket, "hand_back": counts.Choices.HandBack, "release": counts.Choices.Release} {
			to.ObserveInt64(choices, int64(n), label("choice", choice))
		}
		to.ObserveInt64(due, int64(owner.HandBackWaiting()))
		to.ObserveInt64(used, owner.HandBackMemory())
	}
}

// program makes what is known of the store and of the program.
func (o *observables) program(state State) func(metric.Observer) {
	conversations := o.gauge("carryover.store.conversations", "{conversation}", "Conversations in the ticket store; with Redis those of all replicas, counted every ten seconds.")
	displaced := o.counter("carryover.store.displaced_tickets", ticketUnit, "Tickets that the store gave back because another took their place.")
	build := o.gauge("carryover.build_info", dimensionless, "1, with the version of the program.")
	var redis metric.Int64ObservableGauge
	if state.Redis != nil {
		redis = o.gauge("carryover.redis.up", dimensionless, "1 while Redis answers and tickets are shared.")
	}
	return func(to metric.Observer) {
		to.ObserveInt64(conversations, int64(state.Store.Len()))
		to.ObserveInt64(displaced, state.Store.displaced.Load())
		to.ObserveInt64(build, 1, label("version", state.Version))
		if redis != nil {
			up := int64(0)
			if state.Redis() == server.RedisUp {
				up = 1
			}
			to.ObserveInt64(redis, up)
		}
	}
}

// Store measures the operations of a ticket store.
type Store struct {
	server.Store
	metrics   *Metrics
	displaced atomic.Int64 // tickets that a put has displaced
}

// Store returns the store with its operations measured.
func (m *Metrics) Store(store server.Store) *Store { return &Store{Store: store, metrics: m} }

// Peek lists the tickets of conversations.
func (s *Store) Peek(ctx context.Context, keys []convcache.Key) ([]convcache.KeyedBranch, convcache.Outcome) {
	began := time.Now()
	branches, outcome := s.Store.Peek(ctx, keys)
	s.took("peek", outcome, began)
	return branches, outcome
}

// Take removes a ticket.
func (s *Store) Take(ctx context.Context, conversation convcache.Key, id convcache.TicketID) (convcache.Ticket, convcache.Outcome) {
	began := time.Now()
	ticket, outcome := s.Store.Take(ctx, conversation, id)
	s.took("take", outcome, began)
	return ticket, outcome
}

// Put stores a ticket.
func (s *Store) Put(
	ctx context.Context, conversation convcache.Key, ticket convcache.Ticket, ttl time.Duration,
) ([]convcache.Ticket, convcache.Outcome) {
	began := time.Now()
	displaced, outcome := s.Store.Put(ctx, conversation, ticket, ttl)
	s.took("put", outcome, began)
	s.displaced.Add(int64(len(displaced)))
	return displaced, outcome
}

func (s *Store) took(operation string, outcome convcache.Outcome, began time.Time) {
	s.metrics.store.record(time.Since(began), attribute.String("operation", operation), attribute.String("outcome", outcome.String()))
}

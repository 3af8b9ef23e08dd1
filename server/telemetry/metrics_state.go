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

// State is read whenever metrics are collected.
type State struct {
	Fleet *fleet.Fleet
	Store *Store
	// Server returns nil until there is a server.
	Server func() *server.Server
	// Redis returns server.RedisUp if Redis answers, else another word. It is nil if tickets are stored in this
	// process.
	Redis   func() string
	Version string
}

// Watch reads the state whenever metrics are collected. It reports nothing about removed instances.
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

type observables struct {
	maker
	all []metric.Observable
}

type observe func(to metric.Observer, n int, by ...attribute.KeyValue)

func (o *observables) observing(instrument metric.Int64Observable) observe {
	o.all = append(o.all, instrument)
	return func(to metric.Observer, n int, by ...attribute.KeyValue) {
		to.ObserveInt64(instrument, int64(n), metric.WithAttributes(by...))
	}
}

func (o *observables) gauge(name, unit, what string) observe {
	return o.observing(kept[metric.Int64ObservableGauge](&o.maker)(o.meter.Int64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(what))))
}

func (o *observables) counter(name, unit, what string) observe {
	return o.observing(kept[metric.Int64ObservableCounter](&o.maker)(o.meter.Int64ObservableCounter(name, metric.WithUnit(unit), metric.WithDescription(what))))
}

func (o *observables) fleet(state State) func(metric.Observer) {
	is := o.gauge("carryover.instance.state", instanceUnit, "1 for an instance's present state.")
	inFlight := o.gauge("carryover.instance.in_flight", requestUnit, "Attempts of this replica on an instance.")
	waiting := o.gauge("carryover.instance.waiting", requestUnit, "Requests that wait at an instance at its last reading.")
	usage := kept[metric.Float64ObservableGauge](&o.maker)(o.meter.Float64ObservableGauge("carryover.instance.kv_usage",
		metric.WithUnit(ratioUnit), metric.WithDescription("Used share of an instance's KV cache at its last reading.")))
	o.all = append(o.all, usage)
	pinned := o.gauge("carryover.pinned.tokens", tokenUnit, "Tokens of a decode instance's KV cache that this replica's tickets and answers pin, until they are read, released or expired.")
	cache := o.gauge("carryover.kv_cache.tokens", tokenUnit, "Size of an instance's KV cache in tokens.")
	budget := o.gauge("carryover.pinned_budget.tokens", tokenUnit, "Tokens of a decode instance's KV cache that tickets may pin.")
	return func(to metric.Observer) {
		owner := state.Server()
		observe := func(e *fleet.Engine) {
			live := e.Live()
			name, role := attribute.String("instance", e.Name), attribute.String("role", e.Role.String())
			is(to, 1, name, role, attribute.String("state", live.State))
			inFlight(to, live.InFlight, name, role)
			if !live.Read.IsZero() {
				waiting(to, live.Waiting, name, role)
				to.ObserveFloat64(usage, live.Usage, metric.WithAttributes(name, role))
			}
			if live.KVTokens > 0 {
				cache(to, live.KVTokens, name, role)
			}
			if owner == nil || e.Role != upstream.RoleDecode {
				return
			}
			pinned(to, owner.Pins.Pinned(e), name)
			if most := owner.Pins.Budget(e); most > 0 {
				budget(to, most, name)
			}
		}
		for _, e := range state.Fleet.Draining() {
			observe(e) // first, because another engine of its name may have replaced it
		}
		for _, role := range upstream.Roles() {
			for _, e := range state.Fleet.Engines(role) {
				observe(e)
			}
		}
	}
}

// server reports counts and state of the server. Legs of hand-backs belong to no turn, so no turn counts them.
func (o *observables) server(state State) func(metric.Observer) {
	releases := o.counter("carryover.releases", ticketUnit, "Releases of unused tickets, by the leg that carried them: a turn's, or our own.")
	stranded := o.counter("carryover.stranded_handovers", requestUnit, "Hand-overs that no decode leg has taken; their blocks wait for the end of their lease.")
	quarantines := o.counter("carryover.quarantines", instanceUnit, "Incarnations of prefill instances that this replica has quarantined.")
	shed := o.counter("carryover.connections.shed", "{connection}", "Idle client connections that were closed for others.")
	queue := o.gauge("carryover.queue.length", turnUnit, "Turns that wait for a slot of the server, or for an instance.")
	open := o.gauge("carryover.open.turns", turnUnit, "Turns that have their slot.")
	active := o.observing(kept[metric.Int64ObservableUpDownCounter](&o.maker)(o.meter.Int64ObservableUpDownCounter("http.server.active_requests",
		metric.WithUnit(requestUnit), metric.WithDescription("Requests for answers of models that have a slot or wait for one."))))
	tickets := o.gauge("carryover.tickets.held", ticketUnit, "Tickets in the store that this replica made, as far as it knows.")
	ended := o.counter("carryover.hand_backs", ticketUnit, "Tickets taken to hand their KV back to prefill, by outcome.")
	due := o.gauge("carryover.hand_back.waiting", ticketUnit, "Tickets that wait for the leg that hands them back.")
	used := o.gauge("carryover.hand_back.memory", byteUnit, "Memory of the token ids of tickets that may be handed back.")
	return func(to metric.Observer) {
		owner := state.Server()
		if owner == nil {
			return
		}
		counts := owner.Counts()
		for by, n := range map[string]record.Ends{"piggybacked": counts.Piggybacked, "leg": counts.Own} {
			for result, n := range map[string]uint64{"sent": n.Done, "failed": n.Failed, "requeued": n.Requeued} {
				releases(to, int(n), attribute.String("by", by), attribute.String("result", result))
			}
		}
		stranded(to, int(counts.Stranded))
		quarantines(to, int(counts.Quarantines))
		shed(to, int(counts.Shed))
		toBegin, forInstance := owner.Slots.Waiting()
		queue(to, toBegin, attribute.String("queue", "place"))
		queue(to, forInstance, attribute.String("queue", "instance"))
		open(to, owner.Slots.Open())
		active(to, owner.Slots.Open()+toBegin, attrMethod.String(methodPost), attrScheme.String(schemeHTTP))
		tickets(to, counts.Tickets)
		for outcome, n := range map[string]uint64{"done": counts.HandBacks.Done, "failed": counts.HandBacks.Failed, "requeued": counts.HandBacks.Requeued} {
			ended(to, int(n), attribute.String("outcome", outcome))
		}
		due(to, counts.Waiting)
		used(to, int(owner.HandBackMemory()))
	}
}

func (o *observables) program(state State) func(metric.Observer) {
	conversations := o.gauge("carryover.store.conversations", "{conversation}", "Conversations in the ticket store; with Redis, of all replicas, counted every ten seconds.")
	displaced := o.counter("carryover.store.displaced_tickets", ticketUnit, "Tickets that the store displaced by others.")
	build := o.gauge("carryover.build_info", dimensionless, "1, with the version of the program.")
	var redis observe
	if state.Redis != nil {
		redis = o.gauge("carryover.redis.up", dimensionless, "1 while Redis answers and tickets are shared.")
	}
	return func(to metric.Observer) {
		conversations(to, state.Store.Len())
		displaced(to, int(state.Store.displaced.Load()))
		build(to, 1, attribute.String("version", state.Version))
		if redis != nil {
			up := 0
			if state.Redis() == server.RedisUp {
				up = 1
			}
			redis(to, up)
		}
	}
}

// Store measures the operations of a ticket store.
type Store struct {
	convcache.Store
	metrics   *Metrics
	displaced atomic.Int64
}

// Store returns the store with its operations measured.
func (m *Metrics) Store(store convcache.Store) *Store { return &Store{Store: store, metrics: m} }

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

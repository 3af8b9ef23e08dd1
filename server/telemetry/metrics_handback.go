package telemetry

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// watchHandBacks registers the metrics of hand-backs. Their legs belong to no turn, so no turn counts them.
func (m *Metrics) watchHandBacks(state State) error {
	o := &observables{maker: maker{meter: m.meter}}
	ended := o.counter("carryover.hand_backs", ticketUnit, "Tickets that were taken in order to hand their KV back to prefill, by what came of it.")
	waiting := o.gauge("carryover.hand_back.waiting", ticketUnit, "Tickets that no turn is waited for any more, and that wait for their leg.")
	used := o.gauge("carryover.hand_back.memory", byteUnit, "Memory that the ids of tickets take which may be handed back.")
	choices := o.counter("carryover.ticket.choices", ticketUnit, "Choices for tickets at the ends of their answers: a turn may use it for a while, or it is handed back or released at once.")
	return o.read(func(_ context.Context, to metric.Observer) error {
		owner := state.Server()
		if owner == nil {
			return nil
		}
		counts := owner.Counts().HandBacks
		for outcome, n := range map[string]uint64{"done": counts.Done, "failed": counts.Failed, "requeued": counts.Requeued} {
			to.ObserveInt64(ended, int64(n), metric.WithAttributes(attribute.String("outcome", outcome)))
		}
		chosen := owner.Counts().Choices
		for choice, n := range map[string]uint64{"ticket": chosen.Ticket, "hand_back": chosen.HandBack, "release": chosen.Release} {
			to.ObserveInt64(choices, int64(n), metric.WithAttributes(attribute.String("choice", choice)))
		}
		to.ObserveInt64(waiting, int64(owner.HandBackWaiting()))
		to.ObserveInt64(used, owner.HandBackMemory())
		return nil
	})
}

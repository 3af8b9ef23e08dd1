package telemetry

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

func (m *Metrics) watchRegistrations(state State) error {
	if state.Registrations == nil {
		return nil
	}
	o := &observables{maker: maker{meter: m.meter}}
	refused := o.counter("carryover.registrations.refused", "{announcement}", "Announcements over ZeroMQ that were not taken for an engine's.")
	return o.read(func(_ context.Context, to metric.Observer) error {
		for reason, n := range state.Registrations() {
			to.ObserveInt64(refused, int64(n), metric.WithAttributes(attribute.String("reason", reason)))
		}
		return nil
	})
}

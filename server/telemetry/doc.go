// Package telemetry reports turns and the state of the program to OpenTelemetry, in metrics and in traces. It learns about turns as an
// observer of turns that have ended (record.Observer). It uses OpenTelemetry's API; the program brings the SDK and the exporters. It
// promises that
//
//   - a turn never waits for it: observers run at the end of a turn, call nothing that waits, and need a few microseconds; the SDK drops
//     what can't be exported;
//   - no part of a prompt or an answer, no plain id, no credential and no text of an engine becomes a name, a label or an attribute.
//     These are words of closed sets, numbers, names of instances, models that the fleet serves (any other model is "other"), or, in spans
//     alone, the keyed hash of a conversation;
//   - a trace has the ids under which its legs were sent: the ids are made before the legs, and the spans get them afterwards (PresetIDs).
//
// The names of the gen_ai and HTTP conventions are texts of our own: Go's packages of these conventions have left gen_ai
// out since v1.42.0, and gen_ai may still change.
//
// Events that no record contains (releases, stranded hand-overs, quarantines, denied retries) are counted where they happen, and read when
// metrics are collected; so are states, loads and pins. A turn's place in a trace is known before its legs, because engines get the span
// ids in traceparent. Whether a turn is traced is decided once, by the client's flag or by the configured share. If nothing is exported,
// the client's context goes to both legs as it was parsed.
package telemetry

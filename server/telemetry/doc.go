// Package telemetry reports turns and the state of the program to OpenTelemetry, as metrics and traces. It observes turns that have ended
// (record.Observer). The program brings the SDK and the exporters. It promises:
//
//   - No turn waits for it. Observers run at the end of a turn, call nothing that waits, and need a few microseconds; the SDK drops what
//     can't be exported.
//   - No part of a prompt or an answer, no plain id, no credential and no text of an engine becomes a name, a label or an attribute. These
//     are words of closed sets, numbers, names of instances, models that the fleet serves (any other model is "other"), and, in spans
//     only, the keyed hash of a conversation.
//   - A trace has the ids that its legs carried to engines in traceparent: the ids are made before the legs, and the spans get them
//     afterwards (PresetIDs).
//
// The names of the gen_ai and HTTP conventions are our own texts: Go's packages of these conventions have left gen_ai out since v1.42.0,
// and gen_ai may still change.
//
// Events that no record contains (releases, stranded hand-overs, quarantines, denied retries) are counted where they happen, and read when
// metrics are collected, like states, loads and pins. The client's flag or the configured share decides once whether a turn is traced. If
// nothing is exported, both legs get the client's trace context as it was parsed.
package telemetry

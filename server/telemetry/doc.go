// Package telemetry reports turns and the state of the program to OpenTelemetry, in metrics and in traces. It learns of turns as an observer of
// turns that have ended (server.Observer). It uses OpenTelemetry's API; the program brings the SDK and the exporters. It promises that
//
//   - a turn waits for nothing of it: observers run at the end of a turn, call nothing that waits, and need a few microseconds; what
//     can't be exported is dropped by the SDK;
//   - nothing of a prompt, an answer, an id in clear, a credential or an engine's words becomes a name, a label or an attribute: all
//     of them are words of closed sets, numbers, names of instances, models that the fleet serves (what is none of these is "other"),
//     or, in spans alone, the keyed hash of a conversation;
//   - a trace has the ids under which its legs were sent: they are made before the legs, and spans get them afterwards (Preset).
//
// The names of the gen_ai and HTTP conventions are constants of our own (semconv.go): Go's packages of them have left gen_ai out since
// v1.42.0, and it may change.
//
// What no record tells (releases, stranded hand-overs, quarantines, denied retries) is counted where it happens and read
// when somebody asks; so are states, loads and pins. A turn's place in a trace is known before its legs, because engines
// get the span ids in traceparent. Whether a turn is traced is decided once, by the client's flag or by our share. Where
// nothing is exported, the client's context goes to both legs as it was parsed.
package telemetry

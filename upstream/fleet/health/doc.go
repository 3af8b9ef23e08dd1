// Package health decides whether picks prefer an engine: by its connections and health probes (outage.go), by the legs
// that failed (circuit.go), by the streams that it lets wait (silence.go), by its speed among the engines of its role
// (ejection.go), by what it says (paused.go), and by the operator's drain.
//
// It promises that
//
//   - avoiding is a preference: a [Health] says until when its engine is avoided and until when it is down, and refuses
//     nothing ([Health.Up]), unless the engine is silent;
//   - an engine that answers connections is not down, whatever its completions do, and good connections do not close its
//     circuit;
//   - while a circuit is half-open, one attempt at a time tries the engine;
//   - at least half of a role's engines are not ejected;
//   - no function of [Config] but Now is called with a lock held.
package health

// Command carryover is a multi-turn proxy in front of disaggregated (prefill and decode) vLLM instances.
//
// It is the composition root: the only package that reads flags, environment and configuration file, that picks
// implementations and that decides exit codes. Nothing imports it.
//
// It promises that a wrong configuration never starts: all faults of all sources are named in one message, each with its
// key, its value, where the value came from and what would be accepted (config_load.go, config_validate.go). Every setting
// has one row in one table, which gives its key in the file, its flag, its environment variable and its help text
// (config_settings.go). Secrets do not appear on the command line, in prints or in logs (secret.go).
//
// A reload reads all sources anew and is checked in the same way; one that is refused, or that would change what takes a restart,
// changes nothing (reload.go). What is served is put together in wire.go, with wire_discovery.go for where instances come from,
// wire_store.go for tickets and wire_server.go for the server. Operators have a listener of their own (admin.go).
//
// OpenTelemetry's standard variables are read here too, a fault of them is one of the configuration, and the SDK gets what they say as
// options (telemetry_variables.go). Where metrics and spans go is in telemetry_metrics.go and telemetry_traces.go; what they are, in
// package telemetry.
//
// The doctor runs the same program on the fleet and on each pair of instances, and says what its probes and turns have shown
// (doctor.go); what it says of each code stands in tables (doctor_table.go).
//
// It refuses unknown keys, unknown flags, and two ways of saying the same thing at once. The flags of vLLM's example
// disagg_proxy_multiturn.py are accepted as argparse reads them (arglists.go, config_example.go).
//
// Exit codes: 0 when the command did its work, 1 when it could not, 2 when it was asked wrongly (root.go).
//
// # The doctor
//
// The doctor runs the program itself without clients: first on the whole fleet, whose probes are those of serve, then
// once for each pair, with two conversations of two turns over a loopback address and an observing proxy between the
// parts. What its turns have left is taken from the store and released. One file judges what was seen (doctor_judge.go),
// and tables have the words (doctor_table.go and its neighbours). Codes are stable, because scripts depend on them.
//
// # Reload
//
// The rows with live in the settings table can change while turns run: lists of instances, policies and thresholds,
// limits, the log's level. SIGHUP and POST /admin/reload read flags, environment and file anew. A fault, or a change of
// any other setting, changes nothing and is named. A turn keeps the routing that it began with.
package main

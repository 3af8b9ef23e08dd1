// Command carryover is a multi-turn proxy in front of disaggregated (prefill and decode) vLLM instances.
//
// It is the composition root: the only package that reads flags, environment and configuration file, picks implementations
// and decides exit codes. Nothing imports it.
//
// It never starts with a wrong configuration. One message names all faults of all sources, each with its key, its value, the
// value's source and the accepted values (config_load.go, config_validate.go). Every setting
// has one row in one table: its key in the file, its flag, its environment variable and its help text
// (config_settings.go). Secrets do not appear on the command line, in prints or in logs (secret.go).
//
// A reload reads and checks all sources anew. If it is refused, or would change a setting that takes a restart, it changes nothing
// (reload.go). wire.go puts the program together: wire_discovery.go makes the sources of instances, wire_store.go the ticket store and
// wire_server.go the server. Operators have a listener of their own (admin.go).
//
// OpenTelemetry's standard variables are read here too. A fault in them is a fault of the configuration, and the SDK gets their values as
// options (telemetry_variables.go). telemetry_metrics.go and telemetry_traces.go decide where metrics and spans go; package telemetry
// defines them.
//
// The doctor runs the same program on the fleet and on each pair of instances, and reports the results of its probes and turns
// (doctor.go). Tables hold the texts of its codes (doctor_table.go).
//
// It refuses unknown keys, unknown flags, and two ways of saying the same thing at once. The flags of vLLM's example
// disagg_proxy_multiturn.py are accepted as argparse reads them (arglists.go, config_example.go).
//
// Exit codes: 0 when the command did its work, 1 when it could not, 2 for wrong usage or configuration (root.go).
//
// # The doctor
//
// The doctor runs the program itself without clients. It first runs on the whole fleet, with the probes of serve, then once for
// each pair, with two conversations of two turns over a loopback address and an observing proxy between the parts. It takes the
// tickets of its turns from the store and releases them. One file judges the observations (doctor_judge.go), and tables
// hold the texts (doctor_table.go and its neighbours). Codes are stable, because scripts depend on them.
//
// # Reload
//
// The rows with live in the settings table can change while turns run: lists of instances, policies and thresholds,
// limits, the log's level. SIGHUP and POST /admin/reload read flags, environment and file anew. A fault, or a change of
// any other setting, changes nothing and is named. A turn keeps the routing that it began with.
package main

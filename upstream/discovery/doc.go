// Package discovery says where instances come from. Each source is an upstream.Source:
//
//   - [Listed] gives the list of the configuration, which a reload replaces (registry.go);
//   - [DNS] looks up a name periodically, as addresses or as services (dns.go);
//   - [File] reads a file whenever it changes (file.go);
//   - [Registry] has instances that are added and removed at run time (registry.go);
//   - [Named] has the prefill instances that requests name, as far as a [Pattern] permits (named.go);
//   - [Together] makes one source of several (together.go).
//
// It promises that
//
//   - a source first calls set with a list, an empty one if nothing could be looked up yet, and then on changes only;
//   - a failed look-up or read is no change: an instance is removed because its source says so, never because the source does
//     not answer (dns.go, file.go);
//   - names and addresses are unique within a role (registry.go, together.go);
//   - a change from within the program (Replace, Add, Remove, Admit) returns when set has been called with it (registry.go).
//
// Only addresses that upstream.NewInstance accepts become instances. A source leaves unknown settings (KVHost, KVTTL) empty, and
// cmd fills them in. cmd makes the sources and calls Watch; sources reach the fleet only by set. Watch ends with its context and
// leaves no goroutine behind, except that package net waits up to five seconds for an answer to a cancelled look-up.
package discovery

// Package discovery says where instances come from. Each source is an upstream.Source:
//
//   - [Listed] gives the list of the configuration, which a reload replaces (registry.go);
//   - [DNS] looks up a name again and again, as addresses or as services (dns.go);
//   - [File] reads a JSON or YAML file whenever it changes (file.go, parse.go);
//   - [Registry] has instances that are added and removed at run time (registry.go);
//   - [Named] has the prefill instances that requests name, as far as a [Pattern] permits (named.go);
//   - [Together] makes one source of several (together.go).
//
// It promises that
//
//   - a source calls set with a first list before anything else, also when that list is empty because nothing could be
//     looked up yet, and then on changes only;
//   - what cannot be looked up or read is no change: an instance is removed because its source says so, never because
//     the source does not answer (dns.go, file.go);
//   - names and addresses are unique within a role (parse.go, registry.go, together.go);
//   - a change from within the program (Replace, Add, Remove, Admit) returns when set has been called with it (registry.go).
//
// Answers of DNS and the file are foreign bytes; only addresses that upstream.NewInstance accepts become instances. What a
// source does not know of an instance (KVHost, KVTTL) it leaves empty, and cmd fills it in. cmd makes the sources and calls
// Watch; nothing here calls back into the fleet but by set. Watch ends with its context and leaves no goroutine behind, except that
// package net waits up to five seconds for an answer to a look-up that was cancelled.
package discovery
